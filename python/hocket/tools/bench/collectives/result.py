"""Result of a benchmark: a row per size and contender, from the seconds on every rank."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from hocket.tools.bench.collectives.definitions import BUS


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Row of one contender at one size. Seconds are per call: p5, median and p95 over rounds, a round being `calls` in a row.

    Attributes:
        elements: number in a rank's buffer, whose size is `size_bytes`.
        times_s: seconds per call, of each round.
        ratio: median over rounds of this contender's time over the first one's in the same round.
        cpu_s: processor time per call, all threads of all ranks: the sum of their medians.
        bound_share: share of the network's highest possible speed, on an emulated cluster.
        wrong: number of wrong elements on all ranks, before and after the rounds.
    """

    contender: str
    size_bytes: int
    elements: int
    calls: int
    times_s: tuple[float, ...]
    p5_s: float
    median_s: float
    p95_s: float
    algorithm_byte_per_s: float
    bus_byte_per_s: float
    ratio: float
    cpu_s: float
    wrong: int
    bound_share: float | None = None


class Contestant(msgspec.Struct, frozen=True, kw_only=True):
    """Contender of a run, and its cost of a call without communication: median over ranks."""

    name: str
    about: str
    empty_call_s: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one run. `cache_line_ns`: from core to core, None on one core."""

    collective: str
    world: int
    cores: int
    dtype: str
    tcp: bool
    cache_line_ns: float | None
    contenders: tuple[Contestant, ...]
    rows: tuple[Row, ...]

    @property
    def wrong(self) -> int:
        """Number of wrong elements of all rows."""
        return sum(row.wrong for row in self.rows)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest of the given values; `share` 0.5 differs from the median for an even number of them.

    >>> quantile([3.0, 1.0, 2.0], 0.95)
    3.0
    """
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]


def slowest(by_rank: Sequence[Sequence[float]]) -> list[float]:
    """Return the seconds of each round: a collective ends when its last rank does."""
    return [max(each) for each in zip(*by_rank, strict=True)]


def row(
    contender: str,
    times_s: Sequence[float],
    first_s: Sequence[float],
    *,
    what: str,
    world: int,
    size_bytes: int,
    elements: int,
    calls: int,
    wrong: int,
    cpu_s: float,
    bound_s: float | None = None,
) -> Row:
    """Return a row from seconds per call by round, the contender's and the first contender's."""
    median_s = statistics.median(times_s)
    algorithm_byte_per_s = size_bytes / median_s
    return Row(
        contender=contender,
        size_bytes=size_bytes,
        elements=elements,
        calls=calls,
        times_s=tuple(times_s),
        p5_s=quantile(times_s, 0.05),
        median_s=median_s,
        p95_s=quantile(times_s, 0.95),
        algorithm_byte_per_s=algorithm_byte_per_s,
        bus_byte_per_s=algorithm_byte_per_s * BUS[what](world),
        ratio=statistics.median(own_s / one_s for own_s, one_s in zip(times_s, first_s, strict=True)),
        wrong=wrong,
        cpu_s=cpu_s,
        bound_share=None if bound_s is None else bound_s / median_s,
    )

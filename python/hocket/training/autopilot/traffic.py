"""Conclusions about the network from the job's own traffic, by the kernel's statistics of connections.

A connection in use shares links with others and fills queues, so its rate is no measurement of its path. Two things follow from the
rate all the same: a connection whose rate has changed, while the same plan is in force, crosses a link that has changed; and links
carry at least the rates seen on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import median

from msgspec import Struct

from hocket import _native
from hocket.job.paths import Paths

REFERENCE, LATEST = 5, 3
"""Numbers of samples: for the rate that a connection carried, and of its latest ones for the rate that it carries now."""

MOVED = 1.5
"""Ratio by which all of the latest samples must differ, either way, to show another rate."""

TELLING_BYTES, TELLING_S = 256 << 10, 0.05
"""Least bytes and seconds of a sample: with less, it is mostly round trips and bursts, and the kernel counts busy time in ticks of
some milliseconds: flows of 20 to 40 ms a sample differed by a factor of 4 on a network that had not changed."""

Pair = tuple[int, int]
"""Sending and receiving rank."""


US = 1e-6


class Connections:
    """Connections of one engine."""

    def __init__(self, engine: _native.Engine, hosts: Sequence[str]) -> None:
        """Begin without a sample. `hosts`: by rank."""
        self._engine, self._paths = engine, Paths(engine, hosts)
        self._before: dict[int, tuple[int, int]] = {}

    def sample(self) -> tuple[Sample, ...]:
        """Return a sample of each connection that has sent enough to tell something; log what has become of paths."""
        self._paths.tell()
        found = (self._of(rank, numbers) for rank, numbers in enumerate(self._engine.connections()))
        return tuple(each for each in found if each is not None and each.tells)

    def _of(self, rank: int, numbers: tuple[int, int, int, int, int, int] | None) -> Sample | None:
        """Return the sample of one connection; None if nothing is known: within a host, and at first."""
        if numbers is None:
            return None
        _, _, _, sent_bytes, busy_us, _ = numbers
        before, self._before[rank] = self._before.get(rank), (sent_bytes, busy_us)
        return None if before is None else Sample(rank, sent_bytes - before[0], (busy_us - before[1]) * US)


class Sample(Struct, frozen=True, array_like=True):
    """Traffic from one rank to rank `to` since its last sample: bytes acknowledged, and seconds in which some were on the way."""

    to: int
    sent_bytes: int
    busy_s: float

    @property
    def tells(self) -> bool:
        """True if the sample says something about a rate."""
        return self.sent_bytes >= TELLING_BYTES and self.busy_s >= TELLING_S


@dataclass
class _Seen:
    before: list[Sample] = field(default_factory=list)
    now: deque[Sample] = field(default_factory=lambda: deque(maxlen=LATEST))

    def add(self, sample: Sample) -> None:
        if len(self.before) < REFERENCE:
            self.before.append(sample)
        else:
            self.now.append(sample)

    @property
    def moved(self) -> bool:
        if len(self.now) < LATEST:
            return False
        before, now = median(map(_rate, self.before)), [_rate(sample) for sample in self.now]
        return max(now) * MOVED < before or min(now) > before * MOVED

    @property
    def latest(self) -> list[Sample]:
        return [*self.before, *self.now][-LATEST:]


class Traffic:
    """Traffic of one plan in one network, until `begin`."""

    def __init__(self) -> None:
        self._seen: dict[Pair, _Seen] = {}

    def begin(self) -> None:
        """Begin anew, as another plan is in force, or the network was measured: rates from now on are the reference."""
        self._seen.clear()

    def listen(self) -> None:
        """Compare rates from now on with those before, since something has changed."""
        for seen in self._seen.values():
            seen.now.clear()

    def learn(self, everyone: Sequence[Sequence[Sample]]) -> None:
        """Add samples that tell something, by sending rank."""
        for source, samples in enumerate(everyone):
            for sample in samples:
                self._seen.setdefault((source, sample.to), _Seen()).add(sample)

    @property
    def knows(self) -> bool:
        """True if there is a reference to compare with."""
        return any(len(each.before) == REFERENCE for each in self._seen.values())

    @property
    def moved(self) -> bool:
        """True if a connection carries another rate than it did."""
        return any(each.moved for each in self._seen.values())

    @property
    def ratios(self) -> dict[Pair, float]:
        """Present rates of connections over earlier ones, where both were seen."""
        return {
            pair: _pooled(seen.now) / (8 * median(map(_rate, seen.before)))
            for pair, seen in self._seen.items()
            if len(seen.before) == REFERENCE and seen.now
        }

    @property
    def least_bit_per_s(self) -> dict[Pair, float]:
        """Least rates of paths between ranks: those of the latest samples, taken together."""
        return {pair: _pooled(seen.latest) for pair, seen in self._seen.items()}


def _pooled(samples: Collection[Sample]) -> float:
    """Return the mean rate of samples in bit/s."""
    return 8 * sum(each.sent_bytes for each in samples) / sum(each.busy_s for each in samples)


def _rate(sample: Sample) -> float:
    return sample.sent_bytes / sample.busy_s

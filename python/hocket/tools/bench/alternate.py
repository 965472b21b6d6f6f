"""Alternating measurement: contenders take turns round by round, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct


class Spread(Struct, frozen=True, kw_only=True):
    """Times of one contender, seconds: median, 10th and 90th percentile over `rounds`."""

    median_s: float
    p10_s: float
    p90_s: float
    rounds: int

    @classmethod
    def of(cls, times_s: Sequence[float]) -> Spread:
        ordered = sorted(times_s)
        last = len(ordered) - 1
        return cls(
            median_s=statistics.median(ordered),
            p10_s=ordered[round(last * 0.1)],
            p90_s=ordered[round(last * 0.9)],
            rounds=len(ordered),
        )


def alternate(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    before: Callable[[], object] = lambda: None,
    warm_up: int = 2,
) -> dict[str, list[float]]:
    """Run each contender once per round, after `before` (a barrier); return seconds by name, without warm-up rounds."""
    times_s: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(warm_up + rounds):
        for name, run in contenders.items():
            before()
            start_s = time.perf_counter()
            run()
            if turn >= warm_up:
                times_s[name].append(time.perf_counter() - start_s)
    return times_s

"""Critical path of an all-reduce run's iteration: the chain of launches that ends last.

The chain goes back from the last program that ended on any rank. A program could not start before its last rank was ready; from
then on it used the network, together with others that were still running. If another one was running, the chain continues from that
one's end to its launch; if none was, the program waited for computation on its last rank. Records hold times, so the chain is an
observation, not a declared dependency.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from hocket.tools.analysis.summary import Durations, Summary
from hocket.tools.formats.launches import Iteration

COMPUTATION = "computation on rank {rank} until its launch"
TRANSFER = "{name}: from the last rank's launch, or from the end of the program before it"


class Bound(Struct, frozen=True, kw_only=True):
    """Kind of link, over all iterations."""

    bound: str
    share: float
    time: Summary


class LaunchPath(Struct, frozen=True, kw_only=True):
    """Critical path of the job; `negative` links end before they begin, and are left out."""

    iterations: int
    negative: int
    bounds: tuple[Bound, ...]


def launch_path(ranks: list[list[Iteration]], names: dict[int, str]) -> LaunchPath | None:
    """Return the critical path of each rank's iterations; None when no iteration is on all ranks."""
    by_number = [{each.number: each for each in iterations} for iterations in ranks if iterations]
    shared = sorted(set.intersection(*map(set, by_number))) if by_number else []
    times: dict[str, Durations] = {}
    count = 0
    for number in shared:
        chain = _chain([each[number] for each in by_number], names)
        count += bool(chain)
        for bound, time_ns in chain.items():
            times.setdefault(bound, Durations()).add_ns(np.array([time_ns]))
    total_us = sum(each.total_us for each in times.values()) or 1.0
    bounds = []
    for bound, durations in sorted(times.items(), key=lambda each: -each[1].total_us):
        time = durations.summary()
        if time is not None:
            bounds.append(Bound(bound=bound, share=durations.total_us / total_us, time=time))
    negative = sum(each.negative for each in times.values())
    return LaunchPath(iterations=count, negative=negative, bounds=tuple(bounds)) if count else None


def _chain(ranks: list[Iteration], names: dict[int, str]) -> Counter[str]:
    """Return the nanoseconds of each link of one iteration."""
    spans: dict[
        int, tuple[int, int, int]
    ] = {}  # program: ready time on the last rank, that rank, end on the last rank
    for rank, iteration in enumerate(ranks):
        for launch in iteration.launches:
            ready, last, end = spans.get(launch.program, (-1, 0, -1))
            if launch.ready_ns > ready:
                ready, last = launch.ready_ns, rank
            spans[launch.program] = ready, last, max(end, launch.end_ns)
    chain: Counter[str] = Counter()
    here = max(spans, key=lambda program: spans[program][2])
    while True:
        ready, rank, end = spans[here]
        busy = [p for p, (began, _, ended) in spans.items() if began < ready < ended < end]
        before = max(busy, key=lambda program: spans[program][2], default=None)
        start = ready if before is None else spans[before][2]
        chain[TRANSFER.format(name=names.get(here) or f"program {here}")] += end - start
        if before is None:
            chain[COMPUTATION.format(rank=rank)] += ready - ranks[rank].start_ns
            return chain
        here = before

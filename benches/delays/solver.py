"""Row `solver` of `python -m benches delays`: knapsacks and schedules of random instances, against exact ones and the paper's.

Knapsacks: their time, and their profit against CP-SAT's proven optimum. DeFT's Algorithm 1 solves the same windows; it ignores
times of readiness, so only the items of its choice that really fit are counted: in order of readiness, until the window ends.

Schedules: updates per iteration, without slowing down computation, against the link's capacity, and against DeFT's scheduler on the
same link.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean, median

from benches.delays.instances import Model, Window, large_windows, models, small_windows
from benches.delays.optimum import optimum
from benches.row import Row
from hocket import _native
from hocket.artefacts.plan import Schedule

PROVED = 10_000
"""Number of windows that CP-SAT solves, too."""

TIMED = 50
"""Number of windows and models of each size that are timed, or compared with the paper."""

TIMES_MS = {20: 5.0, 60: 200.0}
"""Longest time of one solution, by the number of parts."""

CARRIED = 0.97
"""Least fraction of the link's capacity that must be used."""

NOT_SLOWED = 1.002
"""Ratio to its computation up to which an iteration counts as not slowed."""

DELAY_MAX, MERGE_MAX = 4, 4


def rows() -> Iterator[Row]:
    """Rows of all numbers; takes some minutes."""
    yield from _times()
    yield from _against_exact(small_windows(seed=1, count=PROVED))
    for parts in TIMES_MS:
        yield from _schedules(parts, list(models(parts, TIMED, parts, (1.0, 2.5))))


def _times() -> Iterator[Row]:
    for parts, allowed_ms in TIMES_MS.items():
        for links in (1, 2, 3):
            took_ms, proven = [], 0
            for window in large_windows(seed=links, count=TIMED, parts=parts, links=links):
                began_s = time.perf_counter()
                _, profit, bound = _native.pack(window.items, window.until)
                took_ms.append((time.perf_counter() - began_s) * 1e3)
                proven += profit == bound
            what = f"knapsack of {parts} parts on {links} links"
            yield _row(f"{what}: the longest", max(took_ms), allowed_ms, unit="ms")
            yield _row(f"{what}: proven optimal of {TIMED}", proven)


def _against_exact(windows: Iterable[Window]) -> Iterator[Row]:
    equal, known, claimed, kept = 0, 0, [], []
    for window in windows:
        best = optimum(window.items, window.until)
        _, profit, _ = _native.pack(window.items, window.until)
        known += 1
        equal += profit == best
        if best:
            asked, sent = algorithm_1(window)
            claimed.append(asked / best)
            kept.append(sent / best)
    yield _row(f"as profitable as CP-SAT's, of {known} windows", equal, known, least=True)
    yield _row("Algorithm 1: profit of what it selects, over the optimum", fmean(claimed))
    yield _row("Algorithm 1: profit of what fits of it, over the optimum", fmean(kept))


def algorithm_1(window: Window) -> tuple[int, int]:
    """Profit that DeFT's Algorithm 1 selects, and the part of it that links can really carry."""
    items = sorted(window.items, key=lambda item: item[0])
    links, claimed = _native.algorithm_1(items, begins=[0] * len(window.until), until=window.until)
    done, sent = [0] * len(window.until), 0
    for (ready, busy, profit), link in zip(items, links, strict=True):
        if link is None:
            continue
        ends = max(done[link], ready) + busy[link]
        if ends <= window.until[link]:
            done[link] = ends
            sent += profit
    return claimed, sent


def _schedules(parts: int, instances: Sequence[Model]) -> Iterator[Row]:
    took_ms, carried, alone, chosen = [], [], [], []
    for model in instances:
        began_s = time.perf_counter()
        ours = front(model, [])
        took_ms.append((time.perf_counter() - began_s) * 1e3)
        updates = not_slowed(ours, model)
        carried.append(updates / min(1.0, 1 / model.coverage))
        paper = deft(model)
        papers = rate(steady(model, paper))
        alone.append(updates / model.step_s / papers)
        chosen.append(max(rate(each[1:]) for each in front(model, [paper])) / papers)
    what = f"schedules of {parts} parts"
    yield _row(f"{what}: the median", median(took_ms), TIMES_MS[parts], unit="ms")
    yield _row(f"{what}: updates of those the link carries, the fewest", min(carried), CARRIED, least=True)
    yield _row(f"{what}: updates a second over the paper's, the fewest", min(chosen), 1.0 - 1e-9, least=True)
    yield _row(f"{what}: the same without the paper's as a candidate", min(alone))


def deft(model: Model) -> Schedule:
    """DeFT's own schedule for a model."""
    times = zip(model.forward_s, model.backward_s, model.transfer_s, strict=True)
    return _native.staged_schedule(
        [(forward_s, backward_s, [busy_s]) for forward_s, backward_s, busy_s in times]
    )


def steady(model: Model, schedule: Schedule) -> tuple[float, float]:
    """Seconds of an iteration with a schedule, and updates per iteration."""
    return _native.schedule_steady(
        model.pieces, schedule, needed_s=model.needed_s, backward_end_s=model.step_s, step_s=model.step_s
    )


def front(model: Model, others: Sequence[Schedule]) -> list[tuple[Schedule, float, float]]:
    """Schedules of a model, with seconds of an iteration and updates per iteration."""
    return _native.schedule_front(
        model.pieces,
        needed_s=model.needed_s,
        backward_end_s=model.step_s,
        step_s=model.step_s,
        delay_max=DELAY_MAX,
        merge_max=MERGE_MAX,
        gates=True,
        together=True,
        others=others,
    )


def not_slowed(found: Iterable[tuple[Schedule, float, float]], model: Model) -> float:
    """Most updates per iteration of schedules that do not slow computation."""
    return max(updates for _, iteration_s, updates in found if iteration_s <= NOT_SLOWED * model.step_s)


def rate(steady: tuple[float, float]) -> float:
    """Updates per second, from seconds of an iteration and updates per iteration."""
    iteration_s, updates = steady
    return updates / iteration_s


def _row(what: str, value: float, target: float | None = None, *, least: bool = False, unit: str = "") -> Row:
    return Row(name="solver", what=what, value=value, target=target, least=least, unit=unit)

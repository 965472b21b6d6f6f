"""Arithmetic of the comparison, pure: what ranks measured becomes a row for each method."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct

from hocket.tools.bench.methods.request import Point, Trained


class Row(Struct, frozen=True, kw_only=True):
    """One method over all seeds; `over`: the difference from the first method's final loss, paired by seed.

    Attributes:
        rate: best learning rate of the grid on the seed for tuning; None: it diverged with all.
        at_edge: that rate is the smallest or the largest that was tried, so a better one may lie beyond.
        beyond: rates that were tried beyond the grid, as the best lay at its edge.
        loss, deviation: held-out loss at the end, mean and standard deviation over seeds; None: not all runs ended finite, or there
            is one seed.
        over, effect: mean difference, and that over the deviation of both methods' losses together (Cohen's d).
        step_s: time of a step, the median over seeds of a run's mean.
        reach_s: median time to the final loss of the first method with the same seed, interpolated; None: half of the runs or more
            do not reach it.
        curves: points of each seed.
    """

    method: str
    about: str
    rate: float | None
    at_edge: bool
    beyond: tuple[float, ...] = ()
    loss: float | None
    deviation: float | None
    over: float | None
    effect: float | None
    step_s: float | None
    reach_s: float | None
    curves: tuple[tuple[Point, ...], ...]


class Comparison(Struct, frozen=True, kw_only=True):
    """Methods on one network. `network`, in words; `rates`: the grid; `seeds`, and `tuned_on`; `left_out`: methods that did not
    run, in sentences."""

    model: str
    network: str
    world: int
    cores: int
    steps: int
    think_s: float
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    tuned_on: int
    date: str
    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()


def best_rate(runs: Sequence[Trained]) -> float | None:
    """Return the learning rate with the lowest final loss; None: all diverged."""
    finite = [each for each in runs if each.loss is not None]
    return min(finite, key=lambda each: each.loss or 0.0).run.rate if finite else None


def further(runs: Sequence[Trained]) -> tuple[float, ...]:
    """Return the learning rates to try next: beyond an edge with the best one, as far as the grid's next one is from there; below
    the smallest if all diverged; none if the best lies inside.

    >>> further([])
    ()
    """
    rates = sorted({each.run.rate for each in runs})
    best = best_rate(runs)
    if len(rates) < 2:
        return ()
    if best in (None, rates[0]):
        return (rates[0] ** 2 / rates[1],)
    return (rates[-1] ** 2 / rates[-2],) if best == rates[-1] else ()


def row(
    name: str,
    about: str,
    rate: float | None,
    rates: Sequence[float],
    *,
    runs: Sequence[Trained],
    first: Sequence[Trained],
    beyond: Iterable[float] = (),
) -> Row:
    """Return a method's row. `runs`: one a seed at its best rate; `first`: those of the first method. `rates`: of the grid;
    `beyond`: others that were tried."""
    beyond = tuple(sorted(beyond))
    tried = (*rates, *beyond)
    losses, firsts = ([each.loss for each in of] for of in (runs, first))
    found, of_first = ([each for each in of if each is not None] for of in (losses, firsts))
    whole = bool(found) and len(found) == len(runs)
    comparable = whole and len(of_first) == len(first) == len(runs) and runs is not first
    over = statistics.fmean(a - b for a, b in zip(found, of_first, strict=True)) if comparable else None
    ended = [each.points[-1] for each in runs]
    pairs = zip(runs, firsts, strict=False)
    reached = [None if goal is None else reached_s(each.points, goal) for each, goal in pairs]
    enough = [each for each in reached if each is not None]
    return Row(
        method=name,
        about=about,
        rate=rate,
        at_edge=rate is not None and len(tried) > 1 and rate in (min(tried), max(tried)),
        beyond=beyond,
        loss=statistics.fmean(found) if whole else None,
        deviation=statistics.stdev(found) if whole and len(found) > 1 else None,
        over=over,
        effect=None if over is None else effect(over, found, of_first),
        step_s=statistics.median(each.time_s / each.step for each in ended) if ended else None,
        reach_s=_median(reached) if 2 * len(enough) > len(reached) else None,
        curves=tuple(each.points for each in runs),
    )


def effect(difference: float, one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return a difference of means over the pooled standard deviation; None: fewer than two values, or they do not differ.

    >>> effect(1.0, [3.0, 5.0], [2.0, 4.0])
    0.7071067811865475
    """
    if len(one) < 2 or len(other) < 2:
        return None
    pooled = math.sqrt((statistics.variance(one) + statistics.variance(other)) / 2)
    return difference / pooled if pooled > 0 else None


def reached_s(points: Sequence[Point], goal: float) -> float | None:
    """Return when the loss first came to `goal`, on a line between two points; None: it did not.

    >>> reached_s([Point(step=1, time_s=1.0, loss=3.0), Point(step=2, time_s=2.0, loss=1.0)], 1.5)
    1.75
    """
    if points and points[0].loss is not None and points[0].loss <= goal:
        return points[0].time_s
    for before, after in itertools.pairwise(points):
        if before.loss is not None and after.loss is not None and after.loss <= goal:
            share = (before.loss - goal) / (before.loss - after.loss)
            return before.time_s + share * (after.time_s - before.time_s)
    return None


def _median(reached: Sequence[float | None]) -> float | None:
    """Return the middle of what was reached, where what was not is later than all."""
    times = sorted(math.inf if each is None else each for each in reached)
    middle = statistics.median(times)
    return middle if math.isfinite(middle) else None

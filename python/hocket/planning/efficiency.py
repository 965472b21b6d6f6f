"""Efficiency of merged iterations: the share of synchronous training's progress that an iteration makes.

A step with a batch of B makes a progress in proportion to B / (Bn + B), where the gradient noise scale Bn = tr(Σ) / ‖g‖² is the
batch at which noise and gradient are equally large (McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch
Training", 2018).
Merging k iterations makes one step with k B in place of k steps with B, and ranks that step alone make steps with B = 1. Batches
count in contributions of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.artefacts.learning import Learning
from hocket.artefacts.plan import Schedule

UNKNOWN = "efficiency unknown, counted as 1"
"""Words for an efficiency of None."""


def of_merged(merged: int, ranks: int, noise_scale: float) -> float:
    """Return the efficiency of updates of so many iterations.

    >>> of_merged(2, 4, 8.0)
    0.75
    """
    return (noise_scale + ranks) / (noise_scale + merged * ranks)


def of_alone(ranks: int, noise_scale: float) -> float:
    """Return the least efficiency of ranks that step alone: a step of a rank by itself makes 1 / (Bn + 1). The mean of ranks takes
    away noise as the mean of gradients does, so they make more than that, unless they drift apart.

    >>> of_alone(4, 0.0), of_alone(4, 2.0), round(of_alone(4, 1e9), 6)
    (1.0, 0.5, 0.25)
    """
    return (noise_scale + ranks) / (ranks * (noise_scale + 1))


def of_schedule(schedule: Schedule, elements: Sequence[int], learning: Learning | None) -> float | None:
    """Return the efficiency of a schedule, mean over parameters; `elements`: by bucket. None: not known, as where ranks train ahead
    of an anchor."""
    if not schedule.turns:
        return 1.0
    if learning is None or learning.noise_scale is None or schedule.steps != "one":
        return None
    lost = 0.0
    for size, turns in zip(elements, schedule.turns, strict=True):
        for turn in turns:
            merged = turn.last - turn.first + 1
            share = size * merged / schedule.period
            lost += share * (1 - of_merged(merged, learning.ranks, learning.noise_scale))
    return 1 - lost / max(sum(elements), 1)


def counted(efficiency: float | None) -> float:
    """Return the number by which the planner divides an iteration's time.

    >>> counted(0.5), counted(None)
    (0.5, 1.0)
    """
    return 1.0 if efficiency is None else efficiency


def updates(schedule: Schedule, elements: Sequence[int]) -> float:
    """Return the updates of an iteration, mean over parameters."""
    if not schedule.turns:
        return 1.0
    made = sum(size * len(turns) for size, turns in zip(elements, schedule.turns, strict=True))
    return made / schedule.period / max(sum(elements), 1)

"""Arithmetic of the comparison, pure: the ranks' measurements become a row per strategy and a verdict on the plan.

The report reads `Comparison` as `comparison.json` in a trace directory.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct

from hocket.artefacts.plan import Candidate
from hocket.tools.demo.catalogue import STRATEGIES, WARM_UP_STEPS
from hocket.tools.demo.training import Trained


class Strategy(Struct, frozen=True, kw_only=True):
    """Way of training.

    `step_s` is the median over steps and seeds, after the warm-up. `wait_share` is its share in which no rank computes.
    `loss` is the last step's and `metric` the held-out one, both means over ranks and seeds; `metric_std` is None with
    one seed. `losses` and `times_s` (from the start of training) are the first seed's, by step.
    """

    name: str
    label: str
    step_s: float
    steps_per_s: float
    wait_share: float
    trunk_bytes_per_step: float | None
    loss: float
    metric: float
    metric_std: float | None
    losses: tuple[float, ...]
    times_s: tuple[float, ...]


class Comparison(Struct, frozen=True, kw_only=True):
    """Strategies on one cluster, and candidates of the plan, with times where measured."""

    model: str
    metric_name: str
    cluster: str
    strategies: tuple[Strategy, ...]
    candidates: tuple[Candidate, ...]
    plan_reason: str


class PlanQuality(Struct, frozen=True, kw_only=True):
    """Quality of plan and prediction.

    `regret`: relative slowness of the chosen plan against the best measured one; `prediction_error_median`: over all
    measured candidates, relative to the measured time.
    """

    chosen: str
    fastest: str
    regret: float
    prediction_error_median: float
    measured: int


def step_times_s(trained: Trained) -> list[float]:
    """Return the time of each step after the warm-up, the mean over ranks."""
    by_rank = [_differences(rank.times_s) for rank in trained.ranks]
    return [statistics.fmean(times) for times in zip(*by_rank, strict=True)][WARM_UP_STEPS:]


def median_step_s(runs: Iterable[Trained]) -> float:
    """Return the median over all steps of all runs."""
    return statistics.median(time for trained in runs for time in step_times_s(trained))


def row(name: str, runs: Sequence[Trained], compute_s: float) -> Strategy:
    """Return a strategy's row from its runs, one a seed; `compute_s` is a step without communication."""
    step_s = median_step_s(runs)
    metrics = [_metric(trained) for trained in runs]
    losses = [_losses(trained) for trained in runs]
    crossed = [each.trunk_bytes_per_step for each in runs if each.trunk_bytes_per_step is not None]
    return Strategy(
        name=name,
        label=STRATEGIES[name].label,
        step_s=step_s,
        steps_per_s=1 / step_s,
        wait_share=max(0.0, 1 - compute_s / step_s),
        trunk_bytes_per_step=statistics.fmean(crossed) if crossed else None,
        loss=statistics.fmean(each[-1] for each in losses),
        metric=statistics.fmean(metrics),
        metric_std=statistics.stdev(metrics) if len(metrics) > 1 else None,
        losses=losses[0],
        times_s=tuple(runs[0].ranks[0].times_s),
    )


def speedup(comparison: Comparison, name: str, over: str = "ddp") -> float | None:
    """Return the number of steps of `name` in the time of one of `over`; None when either was not trained."""
    step_s = {each.name: each.step_s for each in comparison.strategies}
    return step_s[over] / step_s[name] if name in step_s and over in step_s else None


def quality(candidates: Sequence[Candidate], chosen: str) -> PlanQuality | None:
    """Return the quality of plan and prediction; None unless the chosen candidate and another one were measured."""
    measured = {each.label: each.measured_step_s for each in candidates if each.measured_step_s is not None}
    if chosen not in measured or len(measured) < 2:
        return None
    fastest = min(measured, key=lambda label: measured[label])
    errors = [
        abs(each.predicted_step_s - each.measured_step_s) / each.measured_step_s
        for each in candidates
        if each.measured_step_s is not None
    ]
    return PlanQuality(
        chosen=chosen,
        fastest=fastest,
        regret=measured[chosen] / measured[fastest] - 1,
        prediction_error_median=statistics.median(errors),
        measured=len(measured),
    )


def _differences(times_s: Sequence[float]) -> list[float]:
    return [after - before for before, after in zip((0.0, *times_s), times_s, strict=False)]


def _losses(trained: Trained) -> tuple[float, ...]:
    """Return the mean over ranks by step: the loss that one machine with all their batches would report."""
    by_rank = (rank.losses for rank in trained.ranks)
    return tuple(statistics.fmean(losses) for losses in zip(*by_rank, strict=True))


def _metric(trained: Trained) -> float:
    total = sum(rank.score_total for rank in trained.ranks)
    return total / sum(rank.score_count for rank in trained.ranks)

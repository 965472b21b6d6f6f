"""Section that compares strategies: one row each, on the same cluster and model."""

from __future__ import annotations

from typing import Any

from hocket.tools.report import quantity
from hocket.tools.report.markup import Html, Row, table, tag
from hocket.tools.report.material import Comparison, Material, Strategy
from hocket.tools.report.section import Section

# A page compares a few ways of training; more rows than this are not read.
STRATEGIES_MAX = 12


def section(material: Material) -> Section | None:
    """Return the section; None when the directory has no comparison, since a single run compares with nothing."""
    comparison = material.comparison
    if comparison is None or not comparison.strategies:
        return None
    return Section(
        "comparison", "How do the strategies compare?", _table(comparison), numbers=_numbers(comparison)
    )


def _numbers(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "name": s.name,
            "label": s.label,
            "step_s": s.step_s,
            "steps_per_s": s.steps_per_s,
            "speedup": _speedup(s, comparison.baseline),
            "wait_share": s.wait_share,
            "trunk_bytes_per_step": s.trunk_bytes_per_step,
            "loss": s.loss,
            "metric": s.metric,
            "metric_std": s.metric_std,
        }
        for s in comparison.strategies
    ]


def _table(comparison: Comparison) -> Html:
    steps = max((len(s.losses) for s in comparison.strategies), default=0)
    loss = f"Loss after {steps} steps" if steps else "Loss"
    metric = f"Held-out {comparison.metric_name}"
    head = ("Strategy", "Steps/s", "Step", "Against baseline", "Waiting", "Trunk bytes/step", loss, metric)
    shown = comparison.strategies[:STRATEGIES_MAX]
    rows = (_row(s, index, comparison) for index, s in enumerate(shown))
    return table(
        head, rows, caption="Strategies on the same cluster, model, data and seeds", class_="numbers"
    )


def _row(strategy: Strategy, index: int, comparison: Comparison) -> Row:
    metric = quantity.digits(strategy.metric, 4)
    if strategy.metric is not None and strategy.metric_std is not None:
        metric += f" ± {quantity.digits(strategy.metric_std, 2)}"
    name = tag("span", tag("i", class_=f"key s{colour(strategy, index, comparison)}"), strategy.label)
    steps_s = quantity.greatest(s.step_s for s in comparison.strategies)
    trunk_bytes = quantity.greatest(s.trunk_bytes_per_step for s in comparison.strategies)
    cells = (
        name,
        quantity.digits(strategy.steps_per_s),
        quantity.seconds(strategy.step_s, like=steps_s),
        quantity.ratio(_speedup(strategy, comparison.baseline)),
        quantity.share(strategy.wait_share),
        quantity.size(strategy.trunk_bytes_per_step, like=trunk_bytes),
        quantity.digits(strategy.loss, 4),
        metric,
    )
    return Row(cells, "ours" if strategy == comparison.ours else None)


def colour(strategy: Strategy, index: int, comparison: Comparison) -> int:
    """Number of the strategy's colour, the same in every chart: 0 is ours, the others go by position."""
    return 0 if strategy == comparison.ours else 1 + index % 5


def _speedup(strategy: Strategy, baseline: Strategy | None) -> float | None:
    if baseline is None or not baseline.step_s or not strategy.step_s:
        return None
    return baseline.step_s / strategy.step_s

"""Headline on the gain: one line and four figures, from the comparison if there is one, otherwise from this run."""

from __future__ import annotations

from statistics import median
from typing import Any

from hocket.tools.report import quantity
from hocket.tools.report.markup import Html, tag
from hocket.tools.report.material import Comparison, Material, Strategy
from hocket.tools.report.step_parts import StepTimes, step_times


def header(material: Material) -> Html:
    title, subtitle, tiles = _content(material)
    figures = (
        tag("div", tag("dt", name), tag("dd", value, tag("small", note))) for name, value, note in tiles
    )
    return tag(
        "header",
        tag("p", "Hocket report", class_="kicker"),
        tag("h1", title),
        tag("p", subtitle, class_="lead"),
        tag("dl", *figures, class_="tiles") if tiles else "",
        *(tag("p", note, class_="note", role="note") for note in material.notes[:NOTES_MAX]),
        _more(len(material.notes) - NOTES_MAX),
    )


# More would push the answer off the first screen; the rest are counted.
NOTES_MAX = 6


def numbers(material: Material) -> dict[str, Any]:
    pair = _pair(material.comparison)
    if pair is None:
        return {"speedup": None, "baseline": None}
    ours, baseline = pair
    return {"speedup": _speedup(ours, baseline), "baseline": baseline.label, "ours": ours.label}


def _content(material: Material) -> tuple[Html, str, list[tuple[str, str, str]]]:
    pair = _pair(material.comparison)
    if pair is None or material.comparison is None:
        return _alone(material)
    ours, baseline = pair
    gain = tag("strong", quantity.ratio(_speedup(ours, baseline)))
    title = tag("span", gain, f" the steps per second of {baseline.label}")
    parts = (material.comparison.model, material.comparison.cluster)
    return (
        title,
        " · ".join(part for part in parts if part),
        _tiles(ours, baseline, material.comparison.metric_name),
    )


def _tiles(ours: Strategy, baseline: Strategy, metric_name: str) -> list[tuple[str, str, str]]:
    was = " was\u00a0{}".format
    tiles = [
        (
            "Step time",
            quantity.seconds(ours.step_s, like=baseline.step_s),
            was(quantity.seconds(baseline.step_s)),
        ),
        (
            "Waiting",
            quantity.share(ours.wait_share),
            was(quantity.share(baseline.wait_share)),
        ),
        (
            "Over the trunk, per step",
            quantity.size(ours.trunk_bytes_per_step, like=baseline.trunk_bytes_per_step),
            was(quantity.size(baseline.trunk_bytes_per_step)),
        ),
    ]
    if ours.metric is not None:
        name = f"Held-out {metric_name}"
        tiles.append((name, quantity.digits(ours.metric, 4), was(quantity.digits(baseline.metric, 4))))
    return tiles


def _alone(material: Material) -> tuple[Html, str, list[tuple[str, str, str]]]:
    rows = step_times(material)
    run = material.run
    where = f"{run.script or 'a script'} on {run.world} ranks"
    if not rows:
        return tag("span", "No steps were recorded"), where, []
    title = tag("span", tag("strong", quantity.seconds(_middle(rows, "step_s"))), " a step")
    forward, backward, loading, for_ranks, for_network = (
        quantity.seconds(_middle(rows, f"{name}_s"))
        for name in ("forward", "backward", "loading", "for_ranks", "for_network")
    )
    tiles = [("Forward, backward", f"{forward}, {backward}", ""), ("Loading", loading, "")]
    if for_ranks == quantity.UNKNOWN:
        tiles.append(("Waiting", quantity.share(_middle(rows, "wait_share")), ""))
    else:
        tiles += [("Waiting for other ranks", for_ranks, ""), ("Waiting for the network", for_network, "")]
    return title, where, tiles


def _middle(rows: list[StepTimes], name: str) -> float | None:
    """Return the median over ranks of one of their medians over steps."""
    known = [value for row in rows if (value := getattr(row, name)) is not None]
    return median(known) if known else None


def _pair(comparison: Comparison | None) -> tuple[Strategy, Strategy] | None:
    if comparison is None or comparison.ours is None or comparison.baseline is None:
        return None
    return comparison.ours, comparison.baseline


def _speedup(ours: Strategy, baseline: Strategy) -> float | None:
    return baseline.step_s / ours.step_s if baseline.step_s and ours.step_s else None


def _more(count: int) -> Html:
    return tag("p", f"And {count} more such notes.", class_="note") if count > 0 else Html("")

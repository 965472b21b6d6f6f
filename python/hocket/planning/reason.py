"""Sentences on the reasons for a plan."""

from __future__ import annotations

from hocket.artefacts.plan import Plan
from hocket.artefacts.tuning import Tuning
from hocket.planning.cost import Load, Prediction
from hocket.planning.measured import Correction


def links(
    chosen: Plan, predicted: Prediction, simplest: tuple[Plan, Prediction], slowest: tuple[Plan, Prediction]
) -> str:
    """Describe the step, and the busiest link with this plan, with the simplest one and with the slowest one."""
    load = predicted.bottleneck
    if load is None:
        return "One rank: nothing travels."
    waited = f"{seconds(predicted.exposed_s)} of it waiting for communication"
    sentence = f"{chosen.label}: {seconds(predicted.step_s)} a step predicted, {waited}; "
    sentence += f"the busiest link is {_carries(load)}."
    said = {seconds(predicted.step_s)}
    for what, (plan, other) in (("simplest", simplest), ("slowest", slowest)):
        if seconds(other.step_s) in said or other.bottleneck is None or other.step_s <= predicted.step_s:
            continue
        said.add(seconds(other.step_s))
        sentence += f" The {what} candidate, {plan.label}, takes {seconds(other.step_s)}: {_carries(other.bottleneck)}."
    return sentence


def gap(step_s: float, bound_s: float | None) -> str:
    """Describe the distance to the lower bound set by hosts' and racks' traffic; empty if the bound is unknown."""
    if bound_s is None:
        return ""
    if step_s <= bound_s * 1.0005:
        return " No plan is faster on these links."
    return f" No plan takes less than {seconds(bound_s)} on these links: at most {1 - bound_s / step_s:.1%} can be gained."


def by(tuning: Tuning | None, correction: Correction | None) -> str:
    """Describe the corrections by a tuning."""
    if tuning is None:
        return ""
    if correction is None:
        return " The tuning has no network like this one: it corrects nothing."
    return f" All-reduces were measured on a network like this one ({tuning.measured_at})."


def _carries(load: Load) -> str:
    rate = f"{load.bit_per_s / 1e6:.0f} Mbit/s"
    return f"{load.link} ({rate}) with {load.bytes / 1e6:.1f} MB, {seconds(load.busy_s)}"


def seconds(time_s: float) -> str:
    """Format a time.

    >>> seconds(1.234), seconds(0.01234)
    ('1.23 s', '12.3 ms')
    """
    return f"{time_s:.2f} s" if time_s >= 1 else f"{time_s * 1e3:.1f} ms"

"""Selection of the schedules that the guard accepts, from the facts known about a training, and its findings on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import get_args

from hocket.artefacts.learning import Check, CheckName, Learning
from hocket.artefacts.plan import Schedule
from hocket.planning.guard import EPSILON, checks, risk, stability_limit, used
from hocket.planning.schedules import turns
from hocket.planning.walk import Rule, Walk, fitted_floor
from hocket.settings import Guard

MOMENTUM = 0.9
"""Momentum assumed for an unknown optimizer: the usual one."""

RISKY = 4.0
"""Factor by which a stable range may be narrower than in synchronous training before a warning, if curvature is unknown; where own
gradients go first and the optimizer is known, before a refusal."""


def rule_of(learning: Learning | None) -> Rule:
    """Return the default rule for the learning rate of merged updates: factor k for SGD, the root of k for Adam."""
    return "sqrt" if learning is not None and learning.adaptive else "linear"


def walk_of(learning: Learning | None) -> Walk | None:
    """Return the walk of the loss; None if unknown, as for optimizers that divide gradients by their history."""
    if learning is None or learning.adaptive or not learning.losses:
        return None
    if learning.drift is None or learning.noise is None:
        return None
    # Differences between few values are noise: the mean estimates the loss.
    loss = math.fsum(learning.losses) / len(learning.losses)
    floor = 0.0 if learning.floor is None else learning.floor
    return Walk(
        loss=loss,
        floor=min(floor, loss),
        rate=learning.rate,
        # An estimate that noise outweighs may be negative.
        drift=max(learning.drift, 0.0),
        noise=learning.noise,
        batch=learning.ranks,
    )


def judged(
    schedule: Schedule, learning: Learning | None, *, epsilon: float = EPSILON, guard: Guard = "full"
) -> tuple[Check, ...]:
    """The worst result of each check over the schedule's buckets; empty if the guard is off, and where ranks step alone, which no
    check judges.

    Raises UsageError for impossible numbers in `learning`.
    """
    if guard == "off" or schedule.outer is not None:
        return ()
    walk = walk_of(learning)
    fitted = None if learning is None else fitted_floor(learning.losses)
    worst: dict[CheckName, Check] = {}
    for bucket in _different(schedule):
        for check in checks(
            walk,
            turns(schedule, bucket),
            schedule.rate,
            rate=0.0 if learning is None else learning.rate,
            momentum=MOMENTUM if learning is None else learning.momentum,
            curvature=None if learning is None else learning.curvature,
            floors=(0.0,) if fitted is None else (0.0, fitted),
            epsilon=epsilon,
            walks=learning is None or not learning.adaptive,
            narrower=math.inf if learning is None else RISKY,
        ):
            before = worst.get(check.name)
            if before is None or _severity(check) > _severity(before):
                worst[check.name] = check
    names = ("ratio",) if guard == "paper" else get_args(CheckName)
    return tuple(worst[name] for name in names)


def risk_of(schedule: Schedule, learning: Learning | None = None) -> float:
    """The largest risk among the schedule's buckets."""
    momentum = MOMENTUM if learning is None else learning.momentum
    return max(risk(turns(schedule, bucket), schedule.rate, momentum) for bucket in _different(schedule))


def closest(found: Iterable[Check]) -> Check | None:
    """The check that has used the largest fraction of its limit; None if nothing is known."""
    return max((check for check in found if check.value is not None), key=used, default=None)


def said(found: Sequence[Check], schedule: Schedule, learning: Learning | None) -> str:
    """Sentences for people on an accepted schedule: the check closest to its limit, and the unknown checks.

    >>> said((), Schedule(), None)
    ' The guard is off.'
    """
    if schedule.outer is not None:
        return " The guard does not judge steps alone."
    if not found:
        return " The guard is off."
    words = ""
    near = closest(found)
    if near is not None:
        words += f" Of the guard's checks, {near.name} is closest to its limit: {near.value:.3g}, limit {near.limit:.3g}."
    unknown = [check.name for check in found if check.passed is None]
    if unknown:
        words += f" Not known: {_listed(unknown)} ({_lacks(unknown, learning)})."
    if "stability" in unknown:
        words += _risk_said(schedule, learning)
    return words


def _different(schedule: Schedule) -> list[int]:
    """One bucket for each distinct list of turns."""
    firsts = {each: at for at, each in reversed(list(enumerate(schedule.turns)))}
    return sorted(firsts.values()) or [0]


def _severity(check: Check) -> tuple[int, float]:
    return {True: 0, None: 1, False: 2}[check.passed], used(check)


def _listed(names: Sequence[str]) -> str:
    """Join names into an English list.

    >>> _listed(["ratio", "progress", "stability"]), _listed(["stability"])
    ('ratio, progress and stability', 'stability')
    """
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def _lacks(unknown: Sequence[CheckName], learning: Learning | None) -> str:
    if learning is None:
        return "the profile has nothing of optimizer and loss"
    lacks = []
    if "ratio" in unknown or "progress" in unknown:
        if learning.adaptive:
            lacks.append(f"the walk of the loss is of SGD, not of {learning.optimizer}")
        elif not learning.losses:
            lacks.append("no loss was logged by `hk.log(model, loss=…)`")
        else:
            lacks.append("noise was not measured, or outweighs the gradient")
    if "stability" in unknown:
        lacks.append("the loss's curvature was not measured by `hk.curvature`")
    return "; ".join(lacks)


def _risk_said(schedule: Schedule, learning: Learning | None) -> str:
    momentum = MOMENTUM if learning is None else learning.momentum
    narrower = risk_of(schedule, learning) * stability_limit(0, momentum)
    if narrower < RISKY:
        return ""
    of = "" if learning is None else f" and a learning rate of {learning.rate:g}"
    assumed = " (assumed)" if learning is None else ""
    return (
        f" There is a risk: with momentum {momentum:g}{assumed}{of}, the largest stable rate is {narrower:.0f} times smaller "
        "than that of synchronous training, and only the sentinel watches."
    )

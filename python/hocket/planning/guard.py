"""Checks that a schedule of merged or late gradients trains like synchronous training: DeFT's preserver, and effects that it
misses.

A plan's evidence has each check's value and limit. A check without data is unknown, which refuses a schedule only where `checks`
says that no sign of trouble would show; elsewhere it is accepted, shown as unknown, and the sentinel watches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hocket.artefacts.learning import Check
from hocket.errors import UsageError
from hocket.planning import anchored
from hocket.planning.walk import Rule, Walk, paper_ratio, progress, rate_factor

EPSILON = 0.01
"""DeFT's limit on the distance of its ratio from 1."""

PROGRESS_LOST_MAX = 0.15
"""Fraction of synchronous training's progress that a schedule may lose per iteration."""

MARGIN = 0.5
"""Fraction of the largest stable step that a schedule may use: curvature is measured once and changes (Cohen et al. 2021)."""

LOST = -1e6
"""Progress, relative to synchronous training, reported for a loss that grows without bound."""

ROUNDS = 10
"""DeFT's limit on enlarging the windows."""

ENLARGED = 1.1
"""Factor by which windows are enlarged each time; the paper gives no number."""


class Turns(NamedTuple):
    """Turns of one bucket over a period of iterations: (first, last, due) of each, ascending; `due` counts into the next
    periods. `own_first`: ranks go on with their own gradients until means arrive."""

    period: int
    turns: tuple[tuple[int, int, int], ...]
    own_first: bool = False

    @property
    def merges(self) -> tuple[int, ...]:
        """Number of iterations in each update.

        >>> Turns(3, ((0, 0, 2), (1, 2, 3))).merges
        (1, 2)
        """
        return tuple(last - first + 1 for first, last, _ in self.turns)

    def factor(self, rule: Rule) -> float:
        """Return the largest factor of the learning rate in one step of the optimizer."""
        return max(rate_factor(rule, merged) / (merged if self.own_first else 1) for merged in self.merges)

    def limit(self, momentum: float) -> float:
        """Return the largest product of learning rate and curvature for which heavy-ball descent converges."""
        if self.own_first:
            return anchored.stability_limit(self.period, self.turns, momentum)
        return stability_limit(self.staleness, momentum)

    @property
    def missed(self) -> int:
        """Number of updates that parameters lack in which no own gradients stand for them."""
        return 0 if self.own_first else self.staleness

    @property
    def staleness(self) -> int:
        """Largest number of updates applied between a gradient's own and the parameters with which the gradient was computed.

        >>> Turns(1, ((0, 0, 0),)).staleness, Turns(1, ((0, 0, 1),)).staleness
        (0, 1)
        """
        count = len(self.turns)
        # `due` gives the updates in an iteration's parameters; earlier periods count too.
        due = [due + at * self.period for at in range(-2 - self._longest, 2) for _, _, due in self.turns]
        first_of_period = (2 + self._longest) * count
        return max(
            first_of_period + at - sum(each < first for each in due)
            for at, (first, _, _) in enumerate(self.turns)
        )

    @property
    def _longest(self) -> int:
        return max(due for _, _, due in self.turns) // self.period


def described(check: Check) -> str:
    """A sentence with both numbers.

    >>> described(Check(name="stability", value=0.3, limit=0.05, passed=False))
    'stability 0.3: limit 0.05, exceeded'
    """
    if check.value is None:
        outcome = "unknown, and so refused" if check.passed is False else "unknown"
        return f"{check.name}: limit {check.limit:.4g}, {outcome}"
    outcome = "kept" if check.passed else "exceeded"
    return f"{check.name} {check.value:.4g}: limit {check.limit:.4g}, {outcome}"


def used(check: Check) -> float:
    """Fraction of the limit used: 1 at the limit, 0 if unknown.

    >>> used(Check(name="progress", value=0.94, limit=0.85, passed=True)).__round__(6)
    0.4
    """
    if check.value is None:
        return 0.0
    if check.name == "stability":
        return check.value / check.limit if check.limit else math.inf
    # Both are 1 where nothing is lost.
    if check.limit == 1:
        return 0.0 if check.value == 1 else math.inf
    return (1 - check.value) / (1 - check.limit)


def stability_limit(delay: int, momentum: float) -> float:
    """The largest product of learning rate and curvature for which heavy-ball descent converges on gradients `delay` updates old.

    It is the largest h for which all roots of z^(d+1) - (1+β)z^d + βz^(d-1) + h lie inside the unit circle. A root leaves the
    circle at z = exp(iθ) where -z^(d-1)(z-1)(z-β) is real and positive: (d - 1/2)θ + arg(z-β) = π/2, which grows with θ for d ≥ 1.

    >>> stability_limit(0, 0.9), round(stability_limit(1, 0.9), 6), round(stability_limit(2, 0.0), 3)
    (3.8, 0.1, 0.618)
    """
    if delay < 0 or not 0 <= momentum < 1:
        raise UsageError(f"guard: delay {delay}, momentum {momentum}: at least 0, and from 0 to below 1")
    if delay == 0:
        return 2 * (1 + momentum)

    def turned(angle: float) -> float:
        return (delay - 0.5) * angle + math.atan2(math.sin(angle), math.cos(angle) - momentum) - math.pi / 2

    low, high = 0.0, math.pi
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if turned(middle) < 0 else (low, middle)
    return 2 * math.sin(low / 2) * math.hypot(math.cos(low) - momentum, math.sin(low))


def checks(
    walk: Walk | None,
    turns: Turns,
    rule: Rule,
    *,
    rate: float,
    momentum: float,
    curvature: float | None,
    floors: Sequence[float] = (),
    epsilon: float = EPSILON,
    walks: bool = True,
    narrower: float = math.inf,
) -> tuple[Check, ...]:
    """All checks of a schedule. `walk`: None if the loss's walk is unknown; `curvature`: the largest eigenvalue of the Hessian,
    None if not measured.

    `floors` are further candidates for the loss's floor (fitted, 0, the user's); the worst progress counts, among floors with which
    synchronous training makes progress. `walks`: the optimizer is one of which a walk may be known. Others, such as Adam, learn
    slower where gradients are late, without a sign that a sentinel sees: uncorrected lateness of theirs needs a known stability. So
    do own gradients first, by any optimizer, whose stable range is more than `narrower` times as narrow as that of synchronous
    training: beyond it, training learns slower before it diverges, if it does.
    """
    merges = turns.merges
    ratio = None if walk is None else paper_ratio(walk, merges, rule)
    kept = None if walk is None else _kept(walk, turns, rule, floors)
    least = 1 - PROGRESS_LOST_MAX
    limit = MARGIN * turns.limit(momentum)
    steepest = None if curvature is None else rate * turns.factor(rule) * curvature
    # Synchronous training may run at the edge of its own limit: a schedule that changes nothing is no danger.
    trivial = turns.staleness == 0 and max(merges) == 1
    unsigned = turns.own_first and turns.limit(momentum) * narrower < stability_limit(0, momentum)
    unknown = False if (turns.missed and not walks) or unsigned else None
    above = ratio is not None and ratio >= 1
    return (
        Check(
            name="ratio",
            value=ratio,
            limit=1 + epsilon if above else 1 - epsilon,
            passed=None if ratio is None else abs(ratio - 1) <= epsilon,
        ),
        Check(name="progress", value=kept, limit=least, passed=None if kept is None else kept >= least),
        Check(
            name="stability",
            value=steepest,
            limit=limit,
            passed=True if trivial else unknown if steepest is None else steepest <= limit,
        ),
    )


def _kept(walk: Walk, turns: Turns, rule: Rule, floors: Sequence[float]) -> float | None:
    all_floors = {walk.floor, *(floor for floor in floors if floor < walk.loss)}
    each = [
        progress(walk._replace(floor=floor), turns.merges, rule, delay=turns.missed) for floor in all_floors
    ]
    # A loss that grows without bound has lost everything.
    return min((max(share, LOST) for share in each if share is not None), default=None)


def risk(turns: Turns, rule: Rule, momentum: float) -> float:
    """Factor by which a schedule reduces the rate's stable range: a step's factor over the largest stable step.

    >>> synchronous, late = Turns(1, ((0, 0, 0),)), Turns(1, ((0, 0, 1),))
    >>> round(risk(late, "one", 0.9) / risk(synchronous, "one", 0.9))
    38
    """
    return turns.factor(rule) / turns.limit(momentum)


def accepted(found: Sequence[Check]) -> bool:
    """Return whether no check failed; the sentinel watches unknown ones."""
    return all(check.passed is not False for check in found)


class Enlarged(NamedTuple):
    """A schedule that keeps DeFT's ratio, and the ratio of its windows to computation."""

    turns: Turns
    capacity_factor: float
    ratio: float


def compatible(
    solve: Callable[[float], Turns | None], walk: Walk, rule: Rule, epsilon: float = EPSILON
) -> Enlarged | None:
    """DeFT's loop: solve, check the ratio, enlarge the windows and solve again, at most 10 rounds; None if no round keeps it.
    `solve`: None where something would never be applied."""
    for round_ in range(ROUNDS):
        factor = ENLARGED**round_
        turns = solve(factor)
        if turns is None:
            continue
        ratio = paper_ratio(walk, turns.merges, rule)
        if abs(ratio - 1) <= epsilon:
            return Enlarged(turns, factor, ratio)
    return None

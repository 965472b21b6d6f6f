"""Local training: ranks step alone, and exchange how far they came once in several steps.

This is the family of DiLoCo (Douillard et al., arXiv 2311.08105): with `late`, steps go on while an exchange is under way, as in
Streaming DiLoCo (Douillard et al., arXiv 2501.18512).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from hocket.artefacts.needs import declared, needs_of
from hocket.artefacts.plan import Begun, Due, Outer, Plan, Schedule, Turn
from hocket.errors import UsageError

Weights = Literal["ranks", "samples", "logged"]
WEIGHTS: tuple[str, ...] = get_args(Weights)
Sites = tuple[tuple[int, ...], ...]
"""Ranks of each site."""
Inside = Literal["host", "rack"] | Sites


class Local(Struct, frozen=True, kw_only=True):
    """Exchange of the progress of ranks that train alone.

    Ranks' parameters differ between exchanges. The *anchor* has the same bits on all ranks: after each exchange the outer optimizer
    steps it with the mean of what ranks have moved since the last one, and each rank goes on from there.

    Args:
        every: number of steps from one exchange to the next.
        late: number of steps that a rank goes on alone while an exchange is under way, less than `every`; 0: it waits.
        fragments: number of parts of the model, each exchanged once in `every` steps, one part after the other: as many bytes in
            all, and a fraction of them at a time (Streaming DiLoCo).
        rate: the outer optimizer's learning rate; the default, without momentum, takes the mean of the ranks' parameters.
        momentum: the outer optimizer's momentum. DiLoCo's 0.9 at a rate of 0.7 multiplies in the long run by 7 what exchanges
            move: after few steps alone, that may diverge.
        nesterov: whether that is Nesterov's.
        weights: what a rank's progress counts by in the mean: `ranks`, all alike; `samples`, those that it has trained on since its
            last exchange; `logged`, the sum of what the script has logged as `weight` since then, such as tokens.
        paced: between exchanges, a rank makes as many steps as its speed lets it: the fastest `every`, one at half its speed half
            as many. Ranks learn from each exchange how fast the others are.
        grace_s: how long an exchange waits for ranks that do not come. Of a rank that is later, it takes what it has stepped by
            then, and leaves the step under way to the next exchange. In an elastic job, it stands with those that have come: a rank
            that is later is lost, with what it has stepped since its last exchange. None: HOCKET_TIMEOUT_S, as for any step.
        quorum: number of ranks that must have come before `grace_s` begins; None: one. In an elastic job, it is the least number of
            members.
        mix: share of its own parameters with which a rank goes on from an exchange, beside the anchor's; None: it goes on from the
            anchor with all that it has stepped since.
        grows: ranks begin with few steps alone, and make twice as many while exchanges keep what ranks gain, up to `every`: where
            ranks drift apart, little is lost. A guard says so; without one, they begin with `every`.
        inside: sites inside which nobody steps alone: ranks of a `host`, of a `rack` of the cluster file, or of each tuple of ranks
            average their gradients in every step and hold the same bits, and only sites differ between exchanges. None: each rank
            is a site of its own.

    >>> Local(every=30).schedule(1).turns[0][0].last
    29
    """

    every: int
    late: int = 0
    fragments: int = 1
    rate: float = 1.0
    momentum: float = 0.0
    nesterov: bool = True
    mix: float | None = None
    weights: Weights = "ranks"
    paced: bool = False
    grace_s: float | None = None
    quorum: int | None = None
    grows: bool = False
    inside: Inside | None = None

    def schedule(self, buckets: int) -> Schedule:
        """Return the schedule of so many buckets. UsageError: an amount is out of range."""
        if self.every < 1 or not 0 <= self.late < self.every:
            raise UsageError(
                f"local: every={self.every}, late={self.late}: every is at least 1, and late from 0 to below it"
            )
        if self.rate <= 0 or not 0 <= self.momentum < 1 or not 0 <= (self.mix or 0) <= 1:
            raise UsageError(
                f"local: rate={self.rate:g}, momentum={self.momentum:g}, mix={self.mix}: the rate is above 0, the momentum from 0 "
                "to below 1, and mix from 0 to 1"
            )
        if self.grace_s is not None and not 0 < self.grace_s < math.inf:
            raise UsageError(f"local: grace_s={self.grace_s:g}: a number of seconds above 0")
        if self.quorum is not None and (self.grace_s is None or self.quorum < 1):
            raise UsageError(
                f"local: quorum={self.quorum}: a number of ranks, at least 1, after which grace_s={self.grace_s} begins\n"
                "hint: hk.Local(…, grace_s=10, quorum=3)"
            )
        if self.weights not in WEIGHTS:
            raise UsageError(f"local: weights={self.weights!r}: {', '.join(WEIGHTS)}")
        if isinstance(self.inside, str):
            raise UsageError(
                f"local: inside={self.inside!r}: a plan does not know where ranks are\n"
                "hint: hk.distribute(…, local=…) does; or the ranks of each site: inside=((0, 1), (2, 3))"
            )
        if not 1 <= self.fragments <= min(self.every, buckets):
            raise UsageError(
                f"local: fragments={self.fragments}: from 1 to every={self.every}, and to the {buckets} buckets of the plan\n"
                "hint: a plan with more buckets, or fewer fragments"
            )
        return Schedule(
            period=self.every,
            together=self.fragments == 1,
            turns=tuple((self._turn(at * self.fragments // buckets),) for at in range(buckets)),
            steps="local",
            outer=Outer(
                rate=self.rate,
                momentum=self.momentum,
                nesterov=self.nesterov and self.momentum > 0,
                mix=self.mix,
                weights=self.weights,
                paced=self.paced,
                grace_s=self.grace_s,
                quorum=self.quorum,
                grows=self.grows,
                inside=self.inside or (),
            ),
            delay_max=self.late,
        )

    def _turn(self, fragment: int) -> Turn:
        """Return the turn of a fragment; the first ones are shorter."""
        first = (fragment + 1) * self.every // self.fragments % self.every
        last = first + self.every - 1
        return Turn(
            first=first,
            last=last,
            sent=Begun(iteration=last, point="backward_end"),
            due=Due(iteration=last + self.late),
        )


def every(schedule: Schedule) -> int:
    """Return the largest number of steps from one exchange to the next.

    >>> every(Local(every=3).schedule(2))
    3
    """
    return max(turn.last - turn.first + 1 for each in schedule.turns for turn in each)


def named(schedule: Schedule) -> str:
    """Return a name of a schedule by which ranks step alone.

    >>> named(Local(every=30, late=1, fragments=2).schedule(3))
    'alone for 30 steps in 2 fragments, late by 1'
    >>> named(Local(every=30, inside=((0, 1), (2, 3))).schedule(1))
    '2 sites alone for 30 steps'
    """
    sites = () if schedule.outer is None else schedule.outer.inside
    late = f", late by {schedule.delay_max}" if schedule.delay_max else ""
    fragments = len(set(schedule.turns))
    parts = f" in {fragments} fragments" if fragments > 1 else ""
    alone = f"{len(sites)} sites alone" if sites else "alone"
    return f"{alone} for {every(schedule)} steps{parts}{late}"


def localized(plan: Plan, local: Local) -> Plan:
    """Return the plan with ranks that train alone between exchanges. UsageError: an amount is out of range."""
    buckets = len(plan.buckets)
    schedule = local.schedule(buckets)
    safer = tuple(shortened(local, most).schedule(buckets) for most in _halves(local.every))
    made = replace(plan, schedule=schedule, safer=safer, label=f"{plan.label}, {named(schedule)}")
    return replace(made, promise=declared(needs_of(made)))


def shortened(local: Local, most: int) -> Local:
    """Return how ranks step alone at most so many times in a row. Where each step is exchanged, the anchor is the ranks' mean: an
    outer momentum of after many steps alone may diverge there.

    >>> found = shortened(Local(every=30, late=20, fragments=2), 15)
    >>> found.every, found.late, found.fragments
    (15, 14, 2)
    """
    every = min(local.every, most)
    if every == 1:
        if local.every == 1:
            return local
        return Local(
            every=1, weights=local.weights, grace_s=local.grace_s, quorum=local.quorum, inside=local.inside
        )
    return replace(local, every=every, late=min(local.late, every - 1), fragments=min(local.fragments, every))


def in_step(schedule: Schedule) -> Schedule:
    """Return the schedule with an exchange after each step, and the mean of ranks as the anchor: the safest of those by which ranks
    step alone.

    >>> in_step(Local(every=30, late=2, fragments=2).schedule(3)) == Local(every=1).schedule(3)
    True
    """
    outer = schedule.outer or Outer()
    turn = Turn(first=0, last=0, sent=Begun(iteration=0, point="backward_end"), due=Due(iteration=0))
    return replace(
        schedule,
        period=1,
        together=True,
        turns=tuple((turn,) for _ in schedule.turns),
        outer=Outer(weights=outer.weights, grace_s=outer.grace_s, quorum=outer.quorum, inside=outer.inside),
        delay_max=0,
    )


def _halves(every: int) -> list[int]:
    """Return numbers of steps alone, each half of the one before, down to 2.

    >>> _halves(30)
    [15, 7, 3]
    """
    found = [every >> each for each in range(1, every.bit_length())]
    return [each for each in found if each > 1]

"""Plans of elastic jobs: with a barrier at each step's end, and, after a loss, with the same buckets by routes that fit the hosts.

Remaining members have to go on at once, so nothing is searched for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from hocket.artefacts.plan import (
    AllReduce,
    Begun,
    Bucket,
    Due,
    Evidence,
    Gathered,
    Plan,
    Schedule,
    Traced,
    Turn,
)
from hocket.planning import seconds
from hocket.planning.buckets import with_codec
from hocket.planning.default import Choice, by_hosts
from hocket.planning.rows import most


def with_barrier(plan: Plan) -> Plan:
    """Return the plan with a barrier at the end of each step in place of gates, by which the optimizer is given the same means.

    A loss may undo a step until all ranks have all of its sums. A layer whose forward has run with some of them could not be run
    again, so no layer begins before.

    >>> from hocket.planning.default import default_plan
    >>> gated = replace(default_plan([], by_hosts("ab")), schedule=Schedule(overlap="gates"))
    >>> with_barrier(gated).schedule == Schedule()
    True
    """
    if not has_gates(plan):
        return plan
    safer = tuple(map(_with_barrier, plan.safer))
    return replace(plan, schedule=_with_barrier(plan.schedule), safer=safer)


def has_gates(plan: Plan) -> bool:
    """Return whether layers wait at gates."""
    return any(each.overlap == "gates" for each in (plan.schedule, *plan.safer))


def _with_barrier(schedule: Schedule) -> Schedule:
    sent = [turn.sent for turns in schedule.turns for turn in turns]
    # What begins with an iteration goes after all that goes at the end of the one before.
    after = 1 + max((each.place for each in sent if isinstance(each, Begun)), default=0)

    def at_end(turn: Turn) -> Turn:
        due, sent = turn.due.iteration, turn.sent
        if isinstance(sent, Begun) and sent.iteration > due:
            sent = Begun(iteration=due, point="backward_end", place=after + sent.place)
        return replace(turn, sent=sent, due=Due(iteration=due))

    turns = tuple(tuple(map(at_end, own)) for own in schedule.turns)
    return replace(schedule, overlap="barrier", turns=turns)


def following(plan: Plan, hosts: Sequence[str], alive: Sequence[int] | None = None) -> Plan:
    """Return a plan for ranks on these hosts. Buckets have the same parts, so their memory stays; policies decide anew about
    theirs, and rows are gathered as before. Where owners update, seconds take the parts of those that are gone; ranks that have
    met own equal parts.

    Means travel by the route that fits the hosts, and over all cards, since a host that has joined may have fewer; where they were
    rounded, they are rounded between hosts. `alive`: these ranks, in the plan; None: they have met.

    >>> from hocket.artefacts.gradient import Gradient
    >>> from hocket.planning.default import default_plan
    >>> before = default_plan([Gradient("w", (10,), "f32")], by_hosts("abc"))
    >>> after = following(before, "aa")
    >>> after.world, after.buckets[0].route.algorithm, after.buckets[0].order
    (2, 'in_place', (0, 1))
    """
    choice = by_hosts(hosts)
    remote = [
        pair for pair in itertools.permutations(range(len(hosts)), 2) if hosts[pair[0]] != hosts[pair[1]]
    ]

    def follows(bucket: Bucket) -> Bucket:
        if isinstance(bucket.route, Traced):
            return replace(bucket, order=choice.order, cards=None)
        if isinstance(bucket.route, Gathered):
            rows = most(bucket, plan.world, len(hosts))
            return replace(bucket, order=choice.order, cards=None, route=replace(bucket.route, rows=rows))
        if seconds.updates(bucket):
            owned = seconds.anew(bucket, hosts) if alive is None else seconds.among(bucket, alive, hosts)
            next_one = replace(owned, codec="none", codec_links=(), cards=None)
        else:
            next_one = _mean(bucket, choice)
        return with_codec(next_one, bucket.codec, remote) if remote and bucket.codec != "none" else next_one

    return replace(
        plan,
        world=len(hosts),
        workers=choice.order,
        buckets=tuple(map(follows, plan.buckets)),
        reason=f"The buckets of a plan for {plan.world} ranks. {choice.reason}",
        evidence=Evidence(),
    )


def means(plan: Plan, hosts: Sequence[str]) -> Plan:
    """Return the plan with a mean of all ranks in place of each policy."""
    choice = by_hosts(hosts)
    return replace(
        plan,
        buckets=tuple(
            _mean(bucket, choice) if isinstance(bucket.route, Traced) else bucket for bucket in plan.buckets
        ),
    )


def _mean(bucket: Bucket, choice: Choice) -> Bucket:
    assert isinstance(choice.route, AllReduce)  # noqa: S101  # `by_hosts` knows no other
    return replace(
        bucket,
        route=choice.route,
        order=choice.order,
        chunk_bytes=choice.chunk_bytes,
        rule=choice.rule,
        codec="none",
        codec_links=(),
        cards=None,
    )

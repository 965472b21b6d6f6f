"""Owners of a bucket by a planner's rule, and shares by rates, on any cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce, Direct, Owned, Owner, OwnersRule, TwoLevel
from hocket.artefacts.promise import EXACT
from hocket.errors import UsageError
from hocket.planning.order import level_sizes
from hocket.planning.question import question_of
from hocket.planning.search import neutral_profile
from hocket.planning.told import Shares, Solution

OWNED = frozenset({"owned", "ring", "trees"})
"""Routes that are requested: at least one must be without owners."""


def owners_by(rule: OwnersRule, like: Owned, members: int, cluster: Cluster, world: int) -> Owned:
    """Return the owners that the rule makes of the first `world` slots of a cluster, with the update and stations of `like`, a
    route of `members` ranks. Of several such sets, it is the one with the nearest fraction of owners among ranks.

    Raises UsageError if the rule makes none there.
    """
    stationed = isinstance(like.via, TwoLevel)
    how = "on two levels " if stationed else ""
    none = UsageError(
        f"a bucket of the plan has its owners {how}by the rule `{rule}`: {world} ranks of the cluster have none\n"
        "hint: `hocket plan` searches for a plan of this cluster"
    )
    if rule == "all":
        everyone = tuple(Owner(rank=rank) for rank in range(world))
        stations = level_sizes(cluster, world)
        if stationed and not stations:
            raise none
        via = TwoLevel(stations=stations) if stationed else Direct()
        return msgspec.structs.replace(like, owners=everyone, via=via)
    solution = _solution(cluster, world)
    wanted = len([each for each in like.owners if each.share]) / members
    found: list[tuple[float, Owned]] = []
    for proposal in solution.proposals:
        by = proposal.exchange
        if isinstance(by, Shares) and proposal.rule == rule and isinstance(by.via, TwoLevel) == stationed:
            made = msgspec.structs.replace(like, owners=by.owners(proposal.order), via=by.via)
            found.append((abs(math.log(len(made.owners) / world / wanted)), made))
    if not found:
        raise none
    return min(found, key=lambda each: each[0])[1]


def collecting_by_rates(cluster: Cluster, order: Sequence[int]) -> AllReduce:
    """Return members that collect and spread as the rates of their hosts allow, in that order of ranks; a ring where all are alike.

    >>> from hocket.artefacts.cluster import Host
    >>> hosts = (*(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abc"), Host(name="d", bandwidth_bit_per_s=(2e8, 1e9)))
    >>> collecting_by_rates(Cluster(hosts=hosts), (3, 0, 1, 2)).sizes
    (60, 60, 60, 60, 0, 60, 60, 60)
    """
    shares = _numbers(cluster, len(order), "collect_spread")
    if shares is None:
        return AllReduce(algorithm="ring")
    sides = shares[: len(order)], shares[len(order) :]
    return AllReduce(algorithm="collect_spread", sizes=tuple(side[rank] for side in sides for rank in order))


def trees_by_links(cluster: Cluster, order: Sequence[int]) -> AllReduce:
    """Return trees that fill the links between ranks in that order; a ring where that is as good.

    >>> from hocket.artefacts.cluster import Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")
    >>> trees_by_links(Cluster(hosts=hosts), (3, 0, 1, 2)).algorithm
    'ring'
    """
    numbers, world = _numbers(cluster, len(order), "trees"), len(order)
    if numbers is None:
        return AllReduce(algorithm="ring")
    place = {rank: at for at, rank in enumerate(order)}
    found: list[int] = []
    for first in range(0, len(numbers), 2 * world + 1):
        weight, *parents = numbers[first : first + 2 * world + 1]
        sides = parents[:world], parents[world:]
        found += [weight, *(place[side[rank]] for side in sides for rank in order)]
    return AllReduce(algorithm="trees", sizes=tuple(found))


def _numbers(cluster: Cluster, world: int, algorithm: str) -> Sequence[int] | None:
    """Return the numbers of an algorithm as it is proposed for the first `world` slots."""
    ways = (proposal.exchange for proposal in _solution(cluster, world).proposals)
    return next((by.sizes for by in ways if isinstance(by, AllReduce) and by.algorithm == algorithm), None)


def _solution(cluster: Cluster, world: int) -> Solution:
    """All proposals for the first `world` slots, owners among them."""
    question = replace(question_of(cluster, neutral_profile(), world, EXACT, None), admitted=OWNED)
    return question.solved(0).solution

"""`hocket plan --update owners`: any plan's reductions, updated by owners."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from hocket.artefacts.plan import AllReduce, Owned, Owner, Part, Plan, Route, Traced
from hocket.artefacts.plan_check import check
from hocket.errors import UsageError
from hocket.planning.buckets import plan_of
from hocket.planning.compile import halves, stages
from hocket.planning.updating import by_owners
from hocket.training.memory.helpers import check_helpers
from tests.planning.test_plan_check import bucket

WORLD = 4


def of(*routes: Route) -> Plan:
    made = [
        msgspec.structs.replace(
            bucket(Part(variable=f"w{at}", stop=10), elements=10, route=route),
            order=(2, 0, 3, 1),
        )
        for at, route in enumerate(routes)
    ]
    return plan_of(made, WORLD, label="all")


@pytest.mark.parametrize(
    "route",
    [
        AllReduce(algorithm="ring"),
        AllReduce(algorithm="two_level", sizes=(1, 3)),
        AllReduce(algorithm="halving_doubling"),
        Owned(owners=(Owner(rank=3, share=2), Owner(rank=0))),
    ],
)
def test_what_is_reduced_gets_owners_that_update(route: Route) -> None:
    """Broken: the plan would not run, or elements would have no owner."""
    plan = by_owners(of(route))
    check(plan)
    made = halves(plan, 0)
    ends = [0, *(stop for _, _, stop in made.parts)]
    assert [(start, stop) for _, start, stop in made.parts] == list(pairwise(ends))
    assert ends[-1] == 10
    assert {name.partition(".")[0] for name in stages(plan, 0)} == {"to_owners", "from_owners"}


def test_shares_stay_and_policies_do() -> None:
    """Broken: a rank without memory for it would own as much as the others, or a policy would be lost."""
    owned = Owned(owners=(Owner(rank=3, share=2), Owner(rank=0)))
    policy = Traced(policy="top_k")
    first, second = by_owners(of(owned, policy)).buckets
    assert first.route == msgspec.structs.replace(owned, update="owners")
    assert second.route == policy


def test_buckets_of_helpers_stay_as_they_are() -> None:
    """Broken: ranks that do not train would be told to step values, without an optimizer."""
    owned = Owned(owners=tuple(Owner(rank=rank) for rank in range(WORLD)))
    plan = of(AllReduce(algorithm="ring"), owned, owned)
    few = (0, 1, 2)
    dense, mine, shared = plan.buckets
    among = [
        msgspec.structs.replace(each, order=few, route=route)
        for each, route in ((dense, dense.route), (mine, Owned(owners=(Owner(rank=1),))))
    ]
    plan = msgspec.structs.replace(plan, workers=few, buckets=(*among, shared))
    check(plan)
    made = by_owners(plan)
    check(made)
    check_helpers(made)
    assert [each.route.update for each in made.buckets] == ["owners", "owners", "replicas"]
    assert {each.rank for each in made.buckets[0].route.owners} == set(few)
    with pytest.raises(UsageError, match="rank 3 is to update values of bucket 2, and does not train"):
        every = msgspec.structs.replace(shared, route=msgspec.structs.replace(owned, update="owners"))
        check_helpers(msgspec.structs.replace(made, buckets=(*among, every)))

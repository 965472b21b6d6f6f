"""The planner against what the first one chose from: one route for all buckets, in one of four sizes."""

from __future__ import annotations

import random

import pytest

from benches.predict.measure import CLUSTERS, profile
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import AllReduce, Owned, Owner
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Level, Promise
from hocket.planning import search
from hocket.planning.compile import programs
from hocket.planning.cost import predict
from tests.planning.planner_inputs import model


def shuffled(seed: int) -> tuple[Cluster, Profile]:
    """Hosts of any speed in any racks, some with several ranks; gradients of any size."""
    draw = random.Random(seed)  # noqa: S311
    racks = tuple(Rack(name=name, uplink_bit_per_s=draw.uniform(1e8, 2e9)) for name in "ab")
    rates = draw.choice([[1e9], [1e8, 1e9], [2e8, 5e8, 1e9]])
    hosts = tuple(
        Host(
            name=f"h{at}",
            rack=draw.choice("ab"),
            slots=draw.choice([1, 1, 2]),
            bandwidth_bit_per_s=draw.choice(rates),
        )
        for at in range(draw.randint(2, 6))
    )
    return Cluster(hosts=hosts, racks=racks), model(
        draw.randint(1, 20), draw.choice([1000, 100_000, 2_000_000])
    )


CASES = {name: (cluster, profile()) for name, cluster in CLUSTERS.items()}
CASES |= {f"random {seed}": shuffled(seed) for seed in range(20)}


@pytest.mark.parametrize("promise", ["exact", "rounded"])
@pytest.mark.parametrize("name", CASES)
def test_no_plan_of_one_route_is_faster(name: str, promise: Level) -> None:
    """Broken: a plan that mixes routes would be slower than the simple one that it replaced."""
    cluster, made_for = CASES[name]
    world, asked = sum(host.slots for host in cluster.hosts), Promise(promise)
    plan = search.plan(cluster, made_for, world, promise=asked)
    assert predict(plan, cluster, made_for).step_s == pytest.approx(plan.predicted_step_s, rel=1e-9)
    for each in search.candidates(cluster, made_for, world, promise=asked):
        assert plan.predicted_step_s <= predict(each, cluster, made_for).step_s + 1e-6
    assert sorted(name for bucket in plan.buckets for name in bucket.variables) == sorted(
        gradient.name for gradient in made_for.gradients
    )


def test_owners_are_fast_hosts() -> None:
    """Broken: a slow host would be in the middle of everybody's ring, where its gradient up and its values down suffice."""
    slow = Host(name="slow", bandwidth_bit_per_s=1e8)
    hosts = (slow, *(Host(name=f"fast{at}", bandwidth_bit_per_s=1e9) for at in range(3)))
    cluster = Cluster(hosts=hosts)
    plan = search.plan(cluster, model(elements=500_000), 4)
    ring = [
        each.predicted_step_s
        for each in search.candidates(cluster, model(elements=500_000), 4)
        if each.buckets[0].route == AllReduce(algorithm="ring")
    ]
    fast = {Owner(rank=rank) for rank in (1, 2, 3)}
    for bucket in plan.buckets:
        assert isinstance(bucket.route, Owned)
        assert set(bucket.route.owners) == fast
        assert bucket.rule.owners == "fastest hosts"
    assert min(ring) > 1.3 * plan.predicted_step_s


def test_owners_by_bandwidth_are_considered_and_run() -> None:
    """Broken: of hosts with different links, owners could have equal parts alone, or parts that no program has."""
    rates = (1e9, 1e9, 5e8, 5e8)
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=rate) for at, rate in enumerate(rates))
    considered = search.candidates(Cluster(hosts=hosts), model(elements=2_000_000), 4)
    uneven = [each for each in considered if each.buckets[0].rule.owners == "hosts by bandwidth"]
    assert uneven
    for plan in uneven:
        route = plan.buckets[0].route
        assert isinstance(route, Owned)
        assert {owner.rank: owner.share for owner in route.owners} == {0: 16, 1: 16, 2: 8, 3: 8}
        assert "4 uneven owners" in plan.label
        assert len(programs(plan)) == len(plan.buckets)


def test_the_gap_to_the_bound_is_said() -> None:
    """Broken: nobody would know whether looking for a better plan is worth anything."""
    cluster, made_for = CASES["3 racks of 2, 500 Mbit/s, trunk 200 Mbit/s"]
    reason = search.plan(cluster, made_for, 6).reason
    assert "No plan of these routes" in reason

"""The planner against what version 1 chose from, and against all plans of one route for all buckets."""

from __future__ import annotations

import random

import pytest

from benches.predict.measure import CLUSTERS, profile
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import AllReduce, Owned, Owner
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise, Word
from hocket.measure.topology import host_rates
from hocket.planning import search
from hocket.planning.compile import programs
from hocket.planning.cost import predict
from hocket.planning.traffic import sent
from hocket.tools.simulation import fidelity, shortlist
from tests.planning.first_planner import first_choice, grid
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


def measured(seed: int) -> tuple[Cluster, Profile]:
    """Hosts of which some have a slow way out, a slow way in, or slow paths to some others, as a probe finds them."""
    draw = random.Random(seed)  # noqa: S311
    world = draw.randint(3, 6)
    out, into = ([draw.choice([1e8, 1e9, 1e9]) for _ in range(world)] for _ in range(2))
    rates = tuple(
        tuple(4e10 if i == j else min(out[i], into[j], draw.choice([3e8, 1e9, 1e9])) for j in range(world))
        for i in range(world)
    )
    hosts = tuple(
        Host(name=f"h{at}", bandwidth_bit_per_s=rate) for at, rate in enumerate(host_rates(rates, {}))
    )
    latency_s = tuple(tuple(0.0 if i == j else 1e-4 for j in range(world)) for i in range(world))
    return Cluster(hosts=hosts, bandwidth_bit_per_s=rates, latency_s=latency_s), model(
        draw.randint(1, 9), draw.choice([100_000, 1_000_000])
    )


CASES = {name: (cluster, profile(name)) for name, cluster in CLUSTERS.items()}
CASES |= {f"random {seed}": shuffled(seed) for seed in range(20)}
CASES |= {f"measured {seed}": measured(seed) for seed in range(10)}


@pytest.mark.parametrize("promise", ["exact", "rounded"])
@pytest.mark.parametrize("name", CASES)
def test_no_plan_of_one_route_is_faster(name: str, promise: Word) -> None:
    """Broken: a plan that mixes routes would be slower than the simple one that it replaced."""
    cluster, made_for = CASES[name]
    world, asked = sum(host.slots for host in cluster.hosts), Promise(promise)
    plan = search.plan(cluster, made_for, world, promise=asked)
    assert predict(plan, cluster, made_for).step_s == pytest.approx(plan.predicted_step_s, rel=1e-9)
    of_version_1 = grid(cluster, made_for, world, rounded=promise == "rounded")
    for each in (*of_version_1, *search.candidates(cluster, made_for, world, promise=asked)):
        assert plan.predicted_step_s <= predict(each, cluster, made_for).step_s + 1e-6
    check(plan, made_for.gradients)


@pytest.mark.parametrize("name", CASES)
def test_message_by_message_it_is_no_slower_than_version_1_s_choice(name: str) -> None:
    """Broken: a plan that is better by the closed form alone would make steps longer."""
    cluster, made_for = CASES[name]
    world = sum(host.slots for host in cluster.hosts)
    plan = shortlist.chosen(search.considered(cluster, made_for, world), cluster, made_for)
    first = first_choice(cluster, made_for, world)
    step_s, first_s = (fidelity.predict(each, cluster, made_for).step_s for each in (plan, first))
    assert step_s <= first_s * (1 + 1e-6)


def test_a_slow_host_passes_everything_once() -> None:
    """Broken: a slow host would be in the middle of everybody's ring, where its gradient up and its values down suffice."""
    slow = Host(name="slow", bandwidth_bit_per_s=1e8)
    hosts = (slow, *(Host(name=f"fast{at}", bandwidth_bit_per_s=1e9) for at in range(3)))
    cluster = Cluster(hosts=hosts)
    plan = search.plan(cluster, model(elements=500_000), 4)
    candidates = search.candidates(cluster, model(elements=500_000), 4)
    ring = [
        each.predicted_step_s for each in candidates if each.buckets[0].route == AllReduce(algorithm="ring")
    ]
    for bucket in plan.buckets:
        passed = sent(bucket)
        assert sum(count for (source, _), count in passed.items() if source == 0) == bucket.elements
        assert sum(count for (_, sink), count in passed.items() if sink == 0) == bucket.elements
    assert min(ring) > 1.3 * plan.predicted_step_s
    # Owners among the fast ones do so, too.
    owned = [each for each in candidates if each.buckets[0].rule.owners == "fastest hosts"]
    fast = {Owner(rank=rank) for rank in (1, 2, 3)}
    assert owned
    assert all(set(each.buckets[0].route.owners) == fast for each in owned)


def test_owners_by_bandwidth_are_considered_and_run() -> None:
    """Broken: of hosts with different links, owners could have equal parts alone, or parts that no program has."""
    rates = (1e9, 1e9, 8e8, 8e8)
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=rate) for at, rate in enumerate(rates))
    considered = search.candidates(Cluster(hosts=hosts), model(elements=2_000_000), 4)
    uneven = [each for each in considered if each.buckets[0].rule.owners == "hosts by bandwidth"]
    assert uneven
    for plan in uneven:
        route = plan.buckets[0].route
        assert isinstance(route, Owned)
        assert {owner.rank: owner.share for owner in route.owners} == {0: 2, 1: 2, 2: 1, 3: 1}
        assert "4 uneven owners" in plan.label
        assert len(programs(plan)) == len(plan.buckets)


def test_the_gap_to_the_bound_is_said() -> None:
    """Broken: nobody would know whether looking for a better plan is worth anything."""
    cluster, made_for = CASES["3 racks of 2, 500 Mbit/s, trunk 200 Mbit/s"]
    reason = search.plan(cluster, made_for, 6).reason
    assert "No plan " in reason
    assert "on these links" in reason

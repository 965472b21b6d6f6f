"""The cost model: bounds it must keep, whatever its constants."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce, Bucket, Owned, Owner
from hocket.artefacts.profile import Profile
from hocket.errors import ArtefactError, UsageError
from hocket.planning import search
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.cost import predict
from tests.planning.planner_inputs import alternating, model

RATES = st.floats(1e6, 1e11)


def measured(rates: list[float], latency_s: float, trunk_bit_per_s: float) -> Cluster:
    base = alternating(trunk_bit_per_s)
    hosts = tuple(
        Host(name=host.name, rack=host.rack, bandwidth_bit_per_s=rate)
        for host, rate in zip(base.hosts, rates, strict=True)
    )
    matrix = tuple(
        tuple(min(a, b) if i != j else 5e10 for j, b in enumerate(rates)) for i, a in enumerate(rates)
    )
    latency = tuple(tuple(0.0 if i == j else latency_s for j in range(4)) for i in range(4))
    return Cluster(
        hosts=hosts, racks=base.racks, latency_s=latency, bandwidth_bit_per_s=matrix, measured_at="now"
    )


@settings(max_examples=60)
@given(
    rates=st.lists(RATES, min_size=4, max_size=4),
    factors=st.lists(st.floats(1, 100), min_size=4, max_size=4),
    trunk=RATES,
    trunk_factor=st.floats(1, 100),
    latency_s=st.floats(1e-6, 0.1),
    which=st.integers(0, 10_000),
)
def test_a_better_network_is_never_predicted_slower(
    *,
    rates: list[float],
    factors: list[float],
    trunk: float,
    trunk_factor: float,
    latency_s: float,
    which: int,
) -> None:
    """Broken: an upgrade would be advised against, and a search over clusters could not be trusted."""
    plans = search.candidates(alternating(), model(), 4)
    plan = plans[which % len(plans)]
    before = predict(plan, measured(rates, latency_s, trunk), model())
    faster = [rate * factor for rate, factor in zip(rates, factors, strict=True)]
    after = predict(plan, measured(faster, latency_s / trunk_factor, trunk * trunk_factor), model())
    assert after.step_s <= before.step_s * (1 + 1e-9)


@settings(max_examples=30)
@given(
    rates=st.lists(RATES, min_size=4, max_size=4),
    shuffle=st.permutations(range(4)),
    which=st.integers(0, 10_000),
)
def test_relabelling_hosts_and_order_alike_changes_nothing(
    rates: list[float], shuffle: list[int], which: int
) -> None:
    """Broken: the prediction would depend on what hosts are called."""
    plans = search.candidates(alternating(), model(), 4)
    plan = plans[which % len(plans)]
    cluster = measured(rates, 1e-4, 1e8)
    moved = [cluster.hosts[i] for i in shuffle]
    place = {old: new for new, old in enumerate(shuffle)}
    renamed = Cluster(hosts=tuple(moved), racks=cluster.racks)
    relabelled = plan_of([relabel(bucket, place) for bucket in plan.buckets], 4, label="")
    plain = Cluster(hosts=cluster.hosts, racks=cluster.racks)
    expected = predict(plan, plain, model()).step_s
    assert predict(relabelled, renamed, model()).step_s == pytest.approx(expected, rel=1e-9)


def relabel(bucket: Bucket, place: dict[int, int]) -> Bucket:
    links = tuple((place[a], place[b]) for a, b in bucket.codec_links)
    order, route = tuple(place[rank] for rank in bucket.order), bucket.route
    if isinstance(route, Owned):
        route = Owned(owners=tuple(Owner(rank=place[each.rank]) for each in route.owners))
    return msgspec.structs.replace(bucket, order=order, route=route, codec_links=links)


def test_no_step_beats_its_busiest_link_or_its_compute(two_racks: Cluster, profile: Profile) -> None:
    """Broken: the planner would promise what no executor can do."""
    for plan in search.candidates(two_racks, profile, 4):
        prediction = predict(plan, two_racks, profile)
        assert prediction.bottleneck is not None
        assert prediction.step_s >= prediction.bottleneck.busy_s
        assert prediction.step_s >= profile.step_s


def test_communication_hidden_behind_backward_costs_nothing(profile: Profile) -> None:
    """Broken: overlap would not be credited, and small buckets never chosen."""
    fast = alternating(trunk_bit_per_s=1e12, host_bit_per_s=1e12)
    plan = search.candidates(fast, profile, 4)[0]
    assert predict(plan, fast, profile).exposed_s < profile.backward_s / 4


def test_a_plan_for_another_model_is_refused(two_racks: Cluster, profile: Profile) -> None:
    """Broken: a stale plan would be scored with wrong readiness times."""
    with pytest.raises(UsageError, match="gradient p7 is not in the profile"):
        predict(search.plan(two_racks, profile, 4), two_racks, model(gradients=4))


def test_an_order_that_is_no_permutation_is_refused(two_racks: Cluster, profile: Profile) -> None:
    """Broken: a damaged plan would be scored."""
    made = buckets([profile.gradients], AllReduce(algorithm="ring"), (0, 1, 1, 3))
    plan = plan_of(made, 4, label="")
    with pytest.raises(ArtefactError, match="is not of ranks of a world of 4, each once"):
        predict(plan, two_racks, profile)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_that_cannot_be_are_refused(rate: float, profile: Profile) -> None:
    """Broken: a cluster file with a zero or a NaN would crash the planner or win every comparison."""
    with pytest.raises(ArtefactError, match="host h0"):
        search.plan(alternating(host_bit_per_s=rate), profile, 4)

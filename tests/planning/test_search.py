"""The choice among candidates."""

from __future__ import annotations

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.network import GOODPUT
from hocket.artefacts.plan import AllReduce, Evidence, Owned, Owner, TwoLevel
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import ROUNDED, Promise
from hocket.errors import ArtefactError, UsageError
from hocket.planning import search
from tests.planning.planner_inputs import alternating, model


def test_alternating_hosts_behind_a_slow_trunk(two_racks: Cluster, profile: Profile) -> None:
    """Broken: the demo's cluster would not get the plan that crosses the trunk least."""
    plan = search.plan(two_racks, profile, 4, promise=ROUNDED)
    first = plan.buckets[0]
    assert first.order == (0, 2, 1, 3)
    assert first.route == AllReduce(algorithm="two_level", sizes=(2, 2))
    assert first.codec == "f16"
    assert first.codec_links == ((0, 1), (1, 0))  # the leaders, each way; not within racks
    assert "trunk of rack0" in plan.reason
    assert plan.label in {candidate.label for candidate in plan.evidence.candidates}
    assert plan.predicted_step_s == min(candidate.predicted_step_s for candidate in plan.evidence.candidates)


def test_candidates_cover_every_choice_once(two_racks: Cluster, profile: Profile) -> None:
    """Broken: the comparison of all candidates would miss some or run one twice."""
    labels = [plan.label for plan in search.candidates(two_racks, profile, 4, promise=ROUNDED)]
    assert (
        len(labels) == len(set(labels)) == 2 * 2 * 2 * 2
    )  # 3.2 MB: 1 MiB and one bucket differ, the rest repeat
    assert {label.split()[0] for label in labels} == {"given", "contiguous"}


def test_nothing_is_rounded_that_nobody_allowed(two_racks: Cluster, profile: Profile) -> None:
    """Broken: two lines alone would train with rounded gradients."""
    for plan in search.candidates(two_racks, profile, 4):
        assert all(bucket.codec == "none" for bucket in plan.buckets)


def test_rounding_between_all_hosts_where_no_link_is_slow(profile: Profile) -> None:
    """Broken: `--promise rounded` on an even network would silently do nothing."""
    even = alternating(host_bit_per_s=1e8, trunk_bit_per_s=1e9)
    first = search.plan(even, profile, 4, promise=ROUNDED).buckets[0]
    assert first.codec == "f16"
    assert len(first.codec_links) >= 4


def test_the_promise_says_which_type_is_on_links(two_racks: Cluster, profile: Profile) -> None:
    """Broken: a model whose gradients are beyond f16's range could not be rounded."""
    plan = search.plan(two_racks, profile, 4, promise=Promise("rounded", codec="bf16"))
    assert {bucket.codec for bucket in plan.buckets} == {"bf16"}


def test_buckets_hold_every_gradient_once_with_its_flag(two_racks: Cluster, profile: Profile) -> None:
    """Broken: a gradient would be lost, sent twice, or have no room for its flag."""
    for plan in search.candidates(two_racks, profile, 4):
        names = [name for bucket in plan.buckets for name in bucket.variables]
        assert names == [f"p{i}" for i in reversed(range(8))]  # the order in which backward makes them
        assert sum(bucket.elements for bucket in plan.buckets) == 8 * 100_000
        assert [bucket.priority for bucket in plan.buckets] == list(range(len(plan.buckets)))


def test_dtypes_do_not_share_a_bucket(two_racks: Cluster) -> None:
    """Broken: a bucket would mix element sizes and the adapter could not lay it out."""
    gradients = tuple(
        Gradient(name=f"g{i}", shape=(10,), dtype="f32" if i % 2 else "bf16", ready_s=0, needed_s=0)
        for i in range(4)
    )
    plan = search.plan(two_racks, search.neutral_profile(gradients), 4)
    assert {bucket.dtype: bucket.variables for bucket in plan.buckets} == {
        "f32": ("g3", "g1"),
        "bf16": ("g2", "g0"),
    }


def test_one_host_uses_its_memory_directly(profile: Profile) -> None:
    """Broken: ranks of one host would go round a ring instead of reading each other's buckets."""
    plan = search.plan(Cluster(hosts=(Host(name="one", slots=4, bandwidth_bit_per_s=1e9),)), profile, 4)
    assert plan.buckets[0].route.algorithm == "in_place"


def test_one_rack_with_several_ranks_per_host_blocks_by_host(profile: Profile) -> None:
    """Broken: ranks that share memory would each use the network."""
    hosts = tuple(Host(name=name, slots=2, bandwidth_bit_per_s=1e8) for name in "ab")
    sizes = {plan.buckets[0].route.sizes for plan in search.candidates(Cluster(hosts=hosts), profile, 4)}
    assert sizes == {(), (2, 2)}


def test_the_same_input_gives_the_same_plan(two_racks: Cluster, profile: Profile) -> None:
    """Broken: ranks that plan by themselves would disagree."""
    assert msgspec.json.encode(search.plan(two_racks, profile, 4)) == msgspec.json.encode(
        search.plan(alternating(), model(), 4)
    )


def test_without_a_profile_the_network_still_decides(two_racks: Cluster) -> None:
    """Broken: a plan could not be previewed before the model was profiled."""
    assert search.plan(two_racks, None, 4).buckets[0].order == (0, 2, 1, 3)


def test_a_neighbour_is_not_enough_where_connections_are_limited(profile: Profile) -> None:
    """Broken: a cloud's limit of a connection would be the limit of a host, and the bound above what builders reach."""
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e9) for at in range(4))

    def between(rate: float) -> Cluster:
        rates = tuple(tuple(4e10 if a == b else rate for b in range(4)) for a in range(4))
        return Cluster(hosts=hosts, bandwidth_bit_per_s=rates)

    found = search.considered(between(2.5e8), profile, 4)
    ring = found.of_builder("ring")
    # A ring sends 3/2 of a gradient over one path each way; an exchange with all sends a sixth of that over each of three.
    assert found.best.predicted_step_s - profile.step_s < 0.5 * (ring.predicted_step_s - profile.step_s)
    bound_s = found.solved.solution.bound_s
    assert all(bound_s <= plan.predicted_step_s + 1e-9 for plan in found.fastest)
    # One connection fills a host's link: everybody at once would only get in one another's way.
    assert search.plan(between(9e8), profile, 4).buckets[0].route == AllReduce(algorithm="ring")


def test_leaders_of_hosts_own_where_connections_are_limited(profile: Profile) -> None:
    """Broken: hosts of several ranks would use one path each, or every rank's gradient would cross between hosts by itself."""
    slots, count, rate = 2, 4, 2.5e8
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", slots=slots, bandwidth_bit_per_s=1e9) for at in range(count)),
        bandwidth_bit_per_s=tuple(
            tuple(4e10 if a == b else rate for b in range(count)) for a in range(count)
        ),
    )
    found = search.considered(cluster, profile, slots * count)
    by_leaders = [
        each
        for each in found.uniform
        if each.buckets[0].rule.owners == "host leaders" and each.buckets[0].codec == "none"
    ]
    assert {each.buckets[0].route for each in by_leaders} == {
        Owned(
            owners=tuple(Owner(rank=slots * at) for at in range(count)),
            via=TwoLevel(stations=(slots,) * count),
        )
    }
    exposed_s = min(each.predicted_step_s for each in by_leaders) - profile.step_s
    for other in ("two-level", "ring", "direct"):
        assert exposed_s < 0.7 * (found.of_builder(other).predicted_step_s - profile.step_s), other


def test_no_two_plans_have_the_same_name(profile: Profile) -> None:
    """Broken: nobody could tell which plan a line of the table, a builder's or a simulated time is of."""
    rates = (1e9, 5e8, 1e9, 5e8)
    racks = tuple(
        Host(name=f"h{at}", rack=f"rack{at % 2}", bandwidth_bit_per_s=rate) for at, rate in enumerate(rates)
    )
    labels = [plan.label for plan in search.candidates(Cluster(hosts=racks), profile, 4)]
    assert len(labels) == len(set(labels))
    assert {
        "given owner 3 1 MiB",
        "given 2 owners (fastest hosts) 1 MiB",
        "given 2 owners (rack leaders) 1 MiB",
    } <= {*labels}


def test_the_bound_is_what_links_must_carry() -> None:
    """Broken: a plan would be said to be as fast as any can be, because the planner does not know a faster one."""
    racks = ("a", "b", "c", "a", "b", "c", "a", "b")
    rates = {"a": 3e8, "b": 2e8, "c": 1.2e8}
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", rack=rack, bandwidth_bit_per_s=4e8) for at, rack in enumerate(racks)),
        racks=tuple(Rack(name=name, uplink_bit_per_s=rate) for name, rate in rates.items()),
    )
    large = model(elements=500_000)
    found = search.considered(cluster, large, 8)
    size = 8 * 500_000 * 32 / GOODPUT
    # Every rack's sum must leave it once; and of three racks, four messages of each element pass between them.
    least_s = max(size / 1.2e8, 4 * size / sum(rates.values()))
    bound_s = found.explained(found.best).evidence.bound_step_s
    assert bound_s is not None
    first_s = min(each.ready_s for each in large.gradients)
    exposed_s = bound_s - large.step_s + large.forward_s + large.backward_s
    assert exposed_s == pytest.approx(first_s + least_s, rel=2e-3)
    assert all(bound_s <= plan.predicted_step_s for plan in found.fastest)
    # The leaders of three racks pass four thirds over the narrowest trunk. A chain passes everything once.
    by_racks = [
        plan.predicted_step_s
        for plan in found.uniform
        if plan.buckets[0].route == AllReduce(algorithm="two_level", sizes=(3, 3, 2))
        and plan.buckets[0].rule.groups == "racks"
    ]
    assert found.best.predicted_step_s < 0.8 * min(by_racks)
    assert found.best.predicted_step_s < 1.03 * bound_s


def test_the_bound_is_not_of_plans_that_promise_less(profile: Profile) -> None:
    """Broken: a plan that rounds would be said to be faster than any can be."""
    even = Cluster(hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e8) for at in range(4)))
    found = search.considered(even, profile, 4)
    least_s = found.solved.solution.least_s
    faster = msgspec.structs.replace(found.best, evidence=Evidence(predicted_step_s=0.9 * least_s))
    assert found.explained(found.best).evidence.bound_step_s == least_s
    assert found.explained(faster).evidence.bound_step_s is None
    assert "No plan " not in found.explained(faster).reason


def test_ranks_of_one_host_wait_for_no_network(profile: Profile) -> None:
    """Broken: ranks that share memory would be said to wait for a network."""
    one = Cluster(hosts=(Host(name="one", slots=4, bandwidth_bit_per_s=1e6),))
    assert search.considered(one, profile, 4).solved.solution.least_s == pytest.approx(profile.step_s)


def test_input_that_cannot_be_planned_is_refused(two_racks: Cluster, profile: Profile) -> None:
    """Broken: an empty cluster or model would end in a traceback."""
    with pytest.raises(ArtefactError, match="no hosts"):
        search.plan(Cluster(hosts=()), profile, 1)
    with pytest.raises(UsageError, match="no gradients"):
        search.plan(two_racks, msgspec.structs.replace(profile, gradients=()), 4)
    odd = Gradient(name="odd", shape=(1,), dtype="f8", ready_s=0, needed_s=0)
    with pytest.raises(UsageError, match="gradient odd has dtype f8"):
        search.plan(two_racks, search.neutral_profile([odd]), 4)


LATENCY_S = 1e-5


def chained(hosts: int, seed: int = 0) -> Cluster:
    """Hosts of one rack along a line, in no order: only the matrix says who is near, and none is far."""
    places = [(host * 5 + seed) % hosts for host in range(hosts)]
    latency = tuple(tuple(LATENCY_S * abs(a - b) for b in places) for a in places)
    names = tuple(Host(name=f"h{index}", bandwidth_bit_per_s=1e10) for index in range(hosts))
    return Cluster(hosts=names, latency_s=latency)


@pytest.mark.parametrize("hosts", [8, 16])
def test_a_measured_network_gets_an_order_of_its_own(profile: Profile, hosts: int) -> None:
    """Broken: what a probe measured beyond racks would be thrown away."""
    cluster = chained(hosts)
    plan = search.plan(cluster, profile, hosts)
    order = plan.buckets[0].order
    following = (*order[1:], order[0])
    steps = [cluster.latency_s[a][b] for a, b in zip(order, following, strict=True)]
    # Whichever search comes first to one of the best orders.
    assert plan.label.split()[:2] in (["solved", "ring"], ["searched", "ring"])
    assert sum(steps) == pytest.approx(
        2 * LATENCY_S * (hosts - 1)
    )  # along the line and back; nothing is shorter
    assert plan == search.plan(chained(hosts), profile, hosts)


def test_racks_that_explain_the_network_need_no_search(two_racks: Cluster, profile: Profile) -> None:
    """Broken: noise of a measurement would give each job another order."""
    latency = tuple(
        tuple(0.0 if a == b else 1e-4 if a % 2 == b % 2 else 2e-4 for b in range(4)) for a in range(4)
    )
    measured = msgspec.structs.replace(two_racks, latency_s=latency)
    labels = [plan.label for plan in search.candidates(measured, profile, 4)]
    assert not any(label.startswith("solved") for label in labels)


def test_a_chain_ends_in_the_racks_with_the_narrowest_trunks(profile: Profile) -> None:
    """It was in the order of racks, if at all: the trunk of the rack in the middle is passed twice in each direction, and that
    was the narrowest one."""
    rates = {"a": 300e6, "b": 120e6, "c": 200e6}
    hosts = tuple(
        Host(name=f"h{rank}", rack=rack, bandwidth_bit_per_s=400e6) for rank, rack in enumerate("abcabcab")
    )
    racks = tuple(Rack(name=name, uplink_bit_per_s=rate) for name, rate in rates.items())
    plans = search.considered(Cluster(hosts=hosts, racks=racks), profile, 8).uniform
    chains = {
        "".join(dict.fromkeys(hosts[rank].rack for rank in bucket.order))
        for plan in plans
        for bucket in plan.buckets
        if isinstance(bucket.route, AllReduce) and bucket.route.sizes == (8,)
    }
    assert chains <= {"bac", "cab"}
    assert chains

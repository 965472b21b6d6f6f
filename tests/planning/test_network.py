"""One reading of a cluster file: who plans, who writes policies and who simulates see the same links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.network import GOODPUT, LATENCY_S, WITHIN_HOST_BIT_PER_S, WITHIN_HOST_LATENCY_S
from hocket.errors import ArtefactError
from hocket.planning.links import link_graph
from hocket.planning.order import placement, rates_bit_per_s
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.solve import Request, solve
from hocket.policy.topology import Topology
from hocket.tools.simulation.networks import from_cluster

RATES = st.floats(1e7, 1e10)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """With and without matrices, trunks and latencies of links."""
    count = draw(st.integers(1, 5))
    latency = draw(st.sampled_from(["none", "links", "matrix"]))
    matrix = [[draw(RATES) for _ in range(count)] for _ in range(count)] if draw(st.booleans()) else []
    seconds = st.floats(1e-6, 1e-2)
    rates = RATES | st.tuples(RATES, RATES)
    return Cluster(
        hosts=tuple(
            Host(
                name=f"h{at}",
                rack=f"r{draw(st.integers(0, 2))}",
                slots=draw(st.integers(1, 2)),
                bandwidth_bit_per_s=draw(rates),
                latency_s=draw(seconds) if latency == "links" else None,
            )
            for at in range(count)
        ),
        racks=tuple(Rack(name=f"r{at}", uplink_bit_per_s=draw(st.none() | rates)) for at in range(3)),
        latency_s=tuple(tuple(draw(seconds) for _ in range(count)) for _ in range(count))
        if latency == "matrix"
        else (),
        bandwidth_bit_per_s=tuple(map(tuple, matrix)),
    )


@settings(max_examples=60)
@given(clusters())
def test_planner_policies_and_simulator_see_one_network(cluster: Cluster) -> None:
    """Broken: a policy would branch on another rate or latency than the one that it is planned and simulated with."""
    world = sum(host.slots for host in cluster.hosts)
    placed = placement(cluster, world)
    topology = Topology.of([cluster.hosts[host].name for host in placed], cluster)
    graph, simulated = link_graph(cluster, world), from_cluster(cluster, world)
    for pair in graph.pairs():
        links, latency_s = simulated.path(*pair)
        seen = topology.link(*pair)
        assert seen.bandwidth == graph.bit_per_s(*pair)
        assert seen.bandwidth == min(simulated.links[link].bit_per_s for link in links)
        assert seen.latency == graph.path(*pair)[1] == latency_s


def test_rates_written_by_hand_lose_headers_and_unknown_latencies_are_the_same_for_all() -> None:
    """Broken: defaults would again differ by who reads the file."""
    cluster = Cluster(
        hosts=(
            Host(name="a", slots=2, bandwidth_bit_per_s=1e9),
            Host(name="b", rack="r1", bandwidth_bit_per_s=5e8),
        ),
        racks=(Rack(name="r1", uplink_bit_per_s=1e8),),
    )
    topology = Topology.of(["a", "a", "b"], cluster)
    between, within = topology.link(0, 2), topology.link(0, 1)
    assert (between.bandwidth, between.latency) == (1e8 * GOODPUT, LATENCY_S)
    assert (within.bandwidth, within.latency) == (WITHIN_HOST_BIT_PER_S, WITHIN_HOST_LATENCY_S)
    assert Topology.of(["a", "b"]).link(0, 1).latency == LATENCY_S
    even = Topology.even(world=4, racks=2, hosts_per_rack=1)
    assert (even.link(0, 1), even.link(0, 2).latency) == (within, LATENCY_S)


def test_cards_that_some_host_lacks_carry_nothing() -> None:
    """Broken: a plan would count on networks that the wire leaves out, and take twice as long as it says."""
    both = (3e8, 1e8)
    hosts = (
        Host(name="a", bandwidth_bit_per_s=4e8, cards_bit_per_s=both),
        Host(name="b", bandwidth_bit_per_s=3e8),
        Host(name="c", bandwidth_bit_per_s=4e8, cards_bit_per_s=both),
    )
    graph = link_graph(Cluster(hosts=hosts), 3)
    rates = {link.name: link.bit_per_s for link in graph.links}
    assert rates["a out"] == rates["b out"] == rates["c in"] == pytest.approx(3e8 * GOODPUT)
    assert graph.cards == ()
    # Of the job's hosts all have both.
    alike = Cluster(hosts=(hosts[0], hosts[2], hosts[1]))
    assert link_graph(alike, 2).bit_per_s(0, 1) == pytest.approx(4e8 * GOODPUT)
    assert len(link_graph(alike, 2).cards) == 2
    assert rates_bit_per_s(alike, 2) == ((4e8, 4e8),) * 2
    assert rates_bit_per_s(alike, 3) == ((3e8, 3e8),) * 3


def test_a_cluster_that_contradicts_itself_is_refused_for_policies_too() -> None:
    """Broken: a policy would be traced for a link of no rate."""
    hosts = (Host(name="a", bandwidth_bit_per_s=1e9), Host(name="b", bandwidth_bit_per_s=0.0))
    with pytest.raises(ArtefactError, match="`bandwidth_bit_per_s` of host b is 0"):
        Topology.of(["a", "b"], Cluster(hosts=hosts))


FOUR = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")


def test_what_goes_through_another_host_crosses_its_links() -> None:
    """Broken: a plan would send most between the two hosts whose bytes a third one has to carry twice."""
    graph = link_graph(Cluster(hosts=FOUR, relays=(("a", "c", "b"),)), 4)
    for source, destination, names in ((0, 1, "a c c b"), (1, 0, "b c c a"), (0, 2, "a c"), (3, 1, "d b")):
        links, latency_s = graph.path(source, destination)
        ends = [f"{name} {'in' if at % 2 else 'out'}" for at, name in enumerate(names.split())]
        assert [graph.links[link].name for link in links] == ends
        assert latency_s == pytest.approx(LATENCY_S * (len(ends) // 2))


@pytest.mark.parametrize(
    ("relays", "said"),
    [
        ([("a", "b")], "the way a - b in `relays` is not three or more different hosts"),
        ([("a", "b", "a")], "is not three or more"),
        ([("a", "x", "b")], "leads through x, which is none of the hosts"),
        ([("a", "c", "b"), ("b", "d", "a")], "`relays` has two ways between a and b"),
        ([("a", "c", "b"), ("a", "d", "c")], "a and c do not reach each other, either"),
    ],
)
def test_ways_that_lead_nowhere_are_refused(relays: list[tuple[str, ...]], said: str) -> None:
    """Broken: a plan would be for a network that cannot be."""
    with pytest.raises(ArtefactError, match=said):
        link_graph(Cluster(hosts=FOUR, relays=tuple(relays)), 4)


def test_a_way_through_a_host_without_ranks_is_refused() -> None:
    """Broken: a plan would count on a host that is not in the job."""
    cluster = Cluster(hosts=FOUR, relays=(("a", "d", "b"),))
    with pytest.raises(ArtefactError, match="a and b reach each other only through d, which has no rank"):
        link_graph(cluster, 3)


def test_orders_avoid_what_goes_through_another_host() -> None:
    """Broken: a ring would have a pair of neighbours that a third host has to serve, in the order that is said to be the best."""
    matrix = of_cluster(Cluster(hosts=FOUR, relays=(("a", "c", "b"),)))
    assert matrix.latency_s[0, 1] == pytest.approx(2 * LATENCY_S)
    assert matrix.latency_s[0, 2] == pytest.approx(LATENCY_S)
    found = solve(matrix, Request(algorithm="ring", size_bytes=0.0))
    at = [found.order.index(host) for host in (0, 1)]
    assert abs(at[0] - at[1]) == 2

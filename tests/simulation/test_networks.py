"""Shapes of networks: every route leads from its source to its destination, and shares what wires share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import UsageError
from hocket.tools.simulation.networks import fat_tree, leaf_spine, star, torus

NETWORKS = {
    "star": lambda: star(6, bit_per_s=1e9),
    "multi-NIC": lambda: star(4, bit_per_s=1e9, ranks_per_host=2, nics=2),
    "leaf-spine": lambda: leaf_spine(3, 4, bit_per_s=1e9, oversubscription=2, spines=2),
    "fat tree": lambda: fat_tree(4, bit_per_s=1e9),
    "torus": lambda: torus([3, 4], bit_per_s=1e9),
}


@pytest.mark.parametrize("shape", NETWORKS)
def test_every_pair_has_a_route_of_links_that_exist_each_once(shape):
    """A rank could not reach another, or its bytes would cross a wire twice."""
    network = NETWORKS[shape]()
    pairs = [(a, b) for a in range(network.world) for b in range(network.world) if a != b]
    network.native_for(pairs)  # refuses what is unsound
    for pair in pairs:
        links, latency_s = network.path(*pair)
        assert links
        assert latency_s > 0
        first, last = (network.links[link].name for link in (links[0], links[-1]))
        if network.hosts[pair[0]] == network.hosts[pair[1]]:
            assert first == f"memory of host {network.hosts[pair[0]]}"
        elif shape != "torus":
            assert first.startswith(f"host {network.hosts[pair[0]]} ")
            assert last.startswith(f"host {network.hosts[pair[1]]} ")
            assert (first.split()[-1], last.split()[-1]) == ("out", "in")


def test_an_oversubscribed_leaf_has_uplinks_for_a_share_of_its_hosts():
    """Congestion between leaves would not show."""
    network = leaf_spine(2, 8, bit_per_s=10e9, oversubscription=4, spines=2)
    uplinks = [
        link.bit_per_s for link in network.links if link.name.startswith("leaf 0") and "out" in link.name
    ]
    assert sum(uplinks) == pytest.approx(8 * 10e9 / 4)


@given(st.integers(0, 11), st.integers(0, 11))
def test_a_torus_takes_the_shorter_way_around(source, destination):
    """Bytes would travel around the whole torus to reach a neighbour."""
    network = torus([3, 4], bit_per_s=1e9)
    if source == destination:
        return
    hops = 0
    for extent, stride in ((3, 1), (4, 3)):
        ahead = (destination // stride - source // stride) % extent
        hops += min(ahead, extent - ahead)
    links, latency_s = network.path(source, destination)
    assert len(links) == hops
    assert latency_s == pytest.approx(hops * 100e-6)


def test_shapes_that_cannot_be_are_refused():
    """A typing error would be simulated."""
    with pytest.raises(UsageError, match="even number"):
        fat_tree(5, bit_per_s=1e9)
    with pytest.raises(UsageError, match="hosts of 0"):
        star(0, bit_per_s=1e9)
    with pytest.raises(UsageError, match="oversubscription of 0"):
        leaf_spine(2, 2, bit_per_s=1e9, oversubscription=0)

"""Which links changed, by rates of a job's own flows."""

from itertools import pairwise

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.measure.by_traffic import rescaled

pytestmark = pytest.mark.hosts

NAMES = ("h0", "h1", "h2", "h3")
STAR = Cluster(
    hosts=tuple(Host(name=name, rack="r", bandwidth_bit_per_s=1e9) for name in NAMES), racks=(Rack(name="r"),)
)


def ring(**slower):
    """Ratios of a ring's flows, `f12=0.5`: rank 1 to rank 2."""
    flows = pairwise((0, 1, 2, 3, 0))
    return {(a, b): slower.get(f"f{a}{b}", 1.05) for a, b in flows}


def test_a_host_whose_flows_are_all_slower_is_slower():
    """The whole job would be taken for slower, or nothing."""
    found = rescaled(STAR, NAMES, ring(f01=0.5, f12=0.5))
    rates = [host.bandwidth_bit_per_s for host in found.hosts]
    assert rates == pytest.approx([1e9, 5e8, 1e9, 1e9])


@pytest.mark.parametrize("ratios", [ring(f12=0.1), ring(), {}, {(1, 2): 0.1}])
def test_what_flows_leave_open_is_not_guessed(ratios):
    """A path that became slow by itself would be taken for two slow hosts, which no order avoids."""
    assert rescaled(STAR, NAMES, ratios) is None


def test_where_all_flows_are_slower_all_hosts_are():
    """A switch that has become slower would not be known."""
    found = rescaled(STAR, NAMES, dict.fromkeys(ring(), 0.5))
    assert {host.bandwidth_bit_per_s for host in found.hosts} == {5e8}


def test_a_flow_that_is_a_little_slower_goes_with_others_that_are_much_slower():
    """What one flow of several measures with noise would keep a slow link from being known."""
    found = rescaled(STAR, NAMES, ring(f01=0.8, f12=0.4))
    assert found.hosts[1].bandwidth_bit_per_s == pytest.approx(6e8)


def test_flows_within_a_host_say_nothing():
    """Copies in a host's memory would be taken for its link."""
    assert rescaled(STAR, ("h0", "h0", "h1"), {(0, 1): 0.1}) is None

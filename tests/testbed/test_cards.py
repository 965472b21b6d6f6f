"""Hosts with several network cards, and jobs that spread their connections over them."""

import subprocess

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import TestbedError, UsageError
from hocket.tools.testbed import Testbed
from tests.testbed.job import ranks

pytestmark = pytest.mark.hosts


def two(cards=(100e6, 50e6)):
    hosts = [
        Host(name=name, bandwidth_bit_per_s=sum(cards), cards_bit_per_s=cards, address=None) for name in "ab"
    ]
    return Cluster(hosts=tuple(hosts))


@pytest.mark.timing
def test_connections_are_spread_over_the_cards_by_their_rates(emulated):
    """The second card would idle, or the slower one would be given as much as the faster and hold every bucket up."""
    with emulated(two()) as bed:
        found = ranks(bed, ["all", "10.77.0.0/16,eth1"])
    assert [addresses for addresses, _, _ in found] == [
        ["10.77.0.1", "10.78.0.1"],
        ["10.77.0.2", "10.78.0.2"],
    ]
    for _, sent, _ in found:
        share = sent["eth1"] / (sent["eth0"] + sent["eth1"])
        assert 0.2 < share < 0.45, sent


@pytest.mark.parametrize(("card", "other"), [("eth0", "eth1"), ("eth1", "eth0")])
def test_a_program_may_keep_to_a_card(emulated, card, other):
    """A bucket would travel on another card than its plan says, and take longer than predicted."""
    with emulated(two()) as bed:
        found = ranks(bed, ["all", "all"], cards=[["eth0", "eth1"].index(card)], HOCKET_STREAMS=2)
    for addresses, sent, _ in found:
        assert len(addresses) == 2
        # Announcements and probes go over the first card's connections.
        assert sent[other] < 0.02 * sent[card], sent


def test_one_interface_and_several_streams(emulated):
    """HOCKET_STREAMS would not be heeded, or traffic would go where the user did not say."""
    with emulated(two()) as bed:
        found = ranks(bed, ["eth1", "eth1"], HOCKET_STREAMS=3)
    for addresses, sent, _ in found:
        assert len(addresses) == 1
        assert sent["eth0"] < 0.02 * sent["eth1"]


def test_the_wire_runs_over_ipv6(emulated):
    """Clusters whose hosts have no IPv4 could not train."""
    with emulated(two()) as bed:
        for number, host in enumerate("ab", 1):
            address = ["ip", "addr", "add", f"fd77::{number}/64", "dev", "eth1", "nodad"]
            subprocess.run([*bed.command(host), *address], check=True)
        found = ranks(bed, ["fd77::/64", "fd77::2"], store="[fd77::1]:29400")
    assert [addresses for addresses, _, _ in found] == [["fd77::1"], ["fd77::2"]]
    for _, sent, _ in found:
        assert sent["eth0"] < 0.02 * sent["eth1"]


def test_cards_that_do_not_add_up_are_refused():
    """A plan would count on a rate that the testbed does not have."""
    host = Host(name="a", bandwidth_bit_per_s=1e9, cards_bit_per_s=(1e8, 1e8))
    with pytest.raises(TestbedError, match=r"host a: 2 cards .*\nhint"), Testbed(Cluster(hosts=(host,))):
        pass
    late = Host(name="a", bandwidth_bit_per_s=2e8, cards_bit_per_s=(1e8, 1e8), latency_s=1e-3)
    with pytest.raises(UsageError, match="one card"):
        Testbed(Cluster(hosts=(late,)))

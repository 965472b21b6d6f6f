"""Rates that differ by direction, on the emulated cluster: one token bucket for each end of a link."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import TestbedError
from hocket.tools.testbed import Testbed, wiring
from tests.testbed.streams import RECEIVE, SEND

pytestmark = pytest.mark.timing

TIMEOUT_S = 20
MBIT = 1e6
HOSTS = (
    Host(name="home", rack="x", bandwidth_bit_per_s=(20 * MBIT, 80 * MBIT)),
    Host(name="office", rack="y", bandwidth_bit_per_s=200 * MBIT),
)


def stream(bed: Testbed, source: str, target: str) -> float:
    """Payload in bit/s."""
    receiver = bed.popen(target, [sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "listening\n"
    bed.popen(source, [sys.executable, "-c", SEND, bed.address(target)])
    found: float = json.loads(receiver.communicate(timeout=TIMEOUT_S)[0])[0]
    return found


@pytest.mark.parametrize("latency_s", [None, 1e-3], ids=["bridges", "switch"])
def test_each_direction_has_its_rate(latency_s: float | None) -> None:
    """Broken: a comparison would be of hosts that are as slow in one direction as in the other."""
    home = Host(name="home", bandwidth_bit_per_s=HOSTS[0].bandwidth_bit_per_s, latency_s=latency_s)
    with Testbed(Cluster(hosts=(home, Host(name="office", bandwidth_bit_per_s=200 * MBIT)))) as bed:
        out, into = stream(bed, "home", "office"), stream(bed, "office", "home")
    assert out <= 20 * MBIT * 1.02
    assert out < into <= 80 * MBIT * 1.02


def test_trunks_are_shaped_at_both_ends() -> None:
    """Broken: what leaves a rack would have the rate of what enters it."""
    racks = (Rack(name="x", uplink_bit_per_s=(5 * MBIT, 9 * MBIT)), Rack(name="y"))
    lines = wiring.wire(Cluster(hosts=HOSTS, racks=racks), [1, 2])
    shaped = {line.split()[3]: line.split("rate ")[1].split()[0] for line in lines.switch_tc}
    assert shaped == {
        "trunk0": "5000000bit",
        "down0": "9000000bit",
        "host0": "80000000bit",
        "host1": "200000000bit",
    }
    assert "rate 20000000bit" in lines.hosts_tc[0][0]
    changed = wiring.reshape(Cluster(hosts=HOSTS, racks=racks), "x", (6 * MBIT, 7 * MBIT))
    assert ["rate 6000000bit" in changed[0], "rate 7000000bit" in changed[1]] == [True, True]


def test_cards_that_do_not_add_up_in_one_direction_are_named() -> None:
    """Broken: a host would have another rate than its file says."""
    cards = ((10 * MBIT, 50 * MBIT), (10 * MBIT, 10 * MBIT))
    host = Host(name="a", bandwidth_bit_per_s=(20 * MBIT, 80 * MBIT), cards_bit_per_s=cards)
    with pytest.raises(TestbedError, match="host a: 2 cards of 6e\\+07 bit/s in together"):
        wiring.wire(Cluster(hosts=(host,)), [1])

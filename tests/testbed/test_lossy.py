"""Paths that lose packets by chance, not for want of room."""

from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host
from tests.testbed.job import ranks

pytestmark = pytest.mark.timing

CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


@pytest.mark.parametrize(
    ("loss", "latency_s", "control"),
    [(1e-2, 5e-3, "bbr"), (0.0, 1e-2, "bbr"), (0.0, 5e-3, "cubic"), (1e-2, 1e-4, "cubic")],
)
def test_connections_that_lose_by_chance_take_a_control_that_bears_it(emulated, loss, latency_s, control):
    """Training between two sites would wait minutes for a second of the link, or sound links would be shared unevenly."""
    if not {"bbr", "cubic"} <= set(CONTROLS.read_text().split()):
        pytest.skip("this kernel has not both controls")
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=200e6, latency_s=latency_s, loss=loss) for name in "ab")
    with emulated(Cluster(hosts=hosts)) as bed:
        found = ranks(bed, ["eth0", "eth0"])
    for _, sent, sockets in found:
        # Of all connections, the one that carried the job is the one with the most.
        lines = [line for line in sockets.splitlines() if "bytes_sent" in line]
        busiest = max(lines, key=lambda line: int(line.partition("bytes_sent:")[2].split()[0]))
        assert busiest.split()[0] == control, (sent, sockets)

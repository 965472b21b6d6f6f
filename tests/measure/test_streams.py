"""How many connections a path needs: found by measuring, asked for only where it may matter."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.measure.rounds import tournament
from hocket.start.processes import ProcessSpec
from hocket.tools.probe import streams
from hocket.tools.probe.hosts import AGENT, probe_hosts
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.steps import Flow
from hocket.tools.testbed import Testbed

pytestmark = pytest.mark.hosts

Emulated = Callable[[Cluster], AbstractContextManager[Testbed]]
PORT = 29_431


class Paths:
    """Steps whose paths have a capacity and a limit for each connection."""

    def __init__(self, limits: dict[Flow, float], capacity: float = 100.0) -> None:
        self.streams: dict[Flow, int] = {}
        self.asked = 0
        self._limits, self._capacity = limits, capacity

    def rates(self, flows: Sequence[Flow]) -> dict[Flow, float]:
        self.asked += 1
        limit = {flow: self._limits.get(flow, self._capacity) for flow in flows}
        return {flow: min(self._capacity, self.streams.get(flow, 1) * limit[flow]) for flow in flows}


def single(paths: Paths, hosts: int) -> list[list[float]]:
    rates = paths.rates([(a, b) for a in range(hosts) for b in range(hosts)])
    paths.asked = 0
    return [[rates[a, b] for b in range(hosts)] for a in range(hosts)]


def test_a_network_that_one_connection_fills_is_left_alone() -> None:
    """Every probe would take twice as long for nothing, and jobs would open connections that only lose to each other."""
    paths = Paths({})
    assert streams.find(paths, single(paths, 8), [tuple(range(8))], print) == {}  # type: ignore[arg-type]
    assert paths.asked == 2


def test_paths_that_limit_connections_get_as_many_as_fill_them() -> None:
    """A cloud that gives each connection a fifth of the link would be used at a fifth."""
    hosts, racks = 6, [(0, 1, 2), (3, 4, 5)]
    between = {(a, b): 30.0 for a in range(hosts) for b in range(hosts) if a // 3 != b // 3}
    paths = Paths(between)
    found = streams.find(paths, single(paths, hosts), racks, print)  # type: ignore[arg-type]
    assert found == dict.fromkeys(between, 4)
    assert paths.streams == found
    assert paths.asked <= 5 * len(tournament(hosts))


def probed(emulated: Emulated, *hosts: Host) -> Cluster:
    cluster = Cluster(hosts=hosts)
    with emulated(cluster) as bed:
        agents = [ProcessSpec(argv=AGENT, host=host.name, prefix=bed.command(host.name)) for host in hosts]
        store = f"{bed.address(hosts[0].name)}:{PORT}"
        return probe_hosts(agents, store=store, serve=False, options=ProbeOptions(rates="tcp"))


@pytest.mark.timing
def test_connections_that_are_limited_are_found_on_a_real_network(emulated: Emulated) -> None:
    """Probes of clouds would show what one connection gets, and jobs would get no more."""
    found = probed(
        emulated, *(Host(name=name, bandwidth_bit_per_s=200e6, flow_bit_per_s=40e6) for name in "ab")
    )
    assert found.streams[0][1] == found.streams[1][0] > 1, found
    assert found.streams[0][0] == 1
    assert found.bandwidth_bit_per_s[0][1] > 55e6


@pytest.mark.timing
def test_a_lossy_path_is_measured_as_the_wire_would_use_it(emulated: Emulated) -> None:
    """Between sites, one connection that takes chance for congestion would be measured, at a hundredth of the link."""
    found = probed(
        emulated, *(Host(name=name, bandwidth_bit_per_s=200e6, latency_s=5e-3, loss=1e-2) for name in "ab")
    )
    assert found.bandwidth_bit_per_s[0][1] > 50e6

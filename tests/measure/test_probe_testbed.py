"""A probe of a real, small network: namespaces with shaped links. Skipped where they are not allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import GOODPUT
from hocket.planning import search
from hocket.start.processes import ProcessSpec
from hocket.tools.probe.hosts import AGENT, probe_hosts
from hocket.tools.testbed import Testbed, example_cluster

pytestmark = pytest.mark.timing

PORT = 29_411


@pytest.fixture(scope="module")
def measured(
    emulated: Callable[[Cluster], AbstractContextManager[Testbed]],
) -> Iterator[tuple[Cluster, Cluster]]:
    """What the testbed was told to be, and what the probe found."""
    told = example_cluster("two-racks")
    with emulated(told) as bed:
        hosts = [
            ProcessSpec(argv=AGENT, host=host.name, prefix=bed.command(host.name)) for host in told.hosts
        ]
        yield told, probe_hosts(hosts, store=f"{bed.address(told.hosts[0].name)}:{PORT}", serve=False)


def test_hosts_of_a_rack_are_found_together(measured: tuple[Cluster, Cluster]) -> None:
    """Broken: the planner would not know which ranks are neighbours."""
    told, found = measured
    assert [host.name for host in found.hosts] == [host.name for host in told.hosts]
    for a, b in zip(told.hosts, found.hosts, strict=True):
        for c, d in zip(told.hosts, found.hosts, strict=True):
            assert (a.rack == c.rack) == (b.rack == d.rack)


def test_the_shared_trunk_is_measured(measured: tuple[Cluster, Cluster]) -> None:
    """Broken: the rate that decides every plan on this network would be wrong."""
    told, found = measured
    for rack in found.racks:
        assert rack.uplink_bit_per_s == pytest.approx(told.racks[0].uplink_bit_per_s * GOODPUT, rel=0.15)


def test_links_and_paths_are_measured(measured: tuple[Cluster, Cluster]) -> None:
    """Broken: flows that shared the trunk in a round would be reported at half their rate."""
    told, found = measured
    for i, host in enumerate(told.hosts):
        assert found.hosts[i].bandwidth_bit_per_s == pytest.approx(
            host.bandwidth_bit_per_s * GOODPUT, rel=0.15
        )
        for j, other in enumerate(told.hosts):
            narrowest = (
                host.bandwidth_bit_per_s if host.rack == other.rack else told.racks[0].uplink_bit_per_s
            )
            if i != j:
                assert found.bandwidth_bit_per_s[i][j] == pytest.approx(narrowest * GOODPUT, rel=0.15)
                assert 0 < found.latency_s[i][j] < 0.01


def test_the_measured_cluster_gets_the_plan_of_the_told_one(measured: tuple[Cluster, Cluster]) -> None:
    """Broken: what the probe writes would not lead the planner to the right choice."""
    told, found = measured
    expected, plan = search.plan(told, None, 4), search.plan(found, None, 4)
    assert (plan.buckets[0].order, plan.label) == (expected.buckets[0].order, expected.label)

"""What a probe takes of a network of namespaces, and what it finds of links of known rates. Skipped where they are not allowed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.network import GOODPUT
from hocket.start.processes import ProcessSpec
from hocket.tools.probe.hosts import AGENT, probe_hosts
from hocket.tools.probe.options import LIMIT_BIT_PER_S, ProbeOptions, Rates
from hocket.tools.probe.pace import OVERHEAD_BYTES
from hocket.tools.probe.steps import Step
from hocket.tools.probe.trains import SEGMENT_BYTES, TRAINS_BYTES
from hocket.tools.testbed import Testbed

pytestmark = pytest.mark.timing

PORT = 29_431
TEN_GIGABIT = 10e9


Emulated = Callable[[Cluster], AbstractContextManager[Testbed]]


def agents(bed: Testbed, cluster: Cluster) -> list[ProcessSpec]:
    return [ProcessSpec(argv=AGENT, host=host.name, prefix=bed.command(host.name)) for host in cluster.hosts]


def bits_sent(bed: Testbed, host: str) -> float:
    """So far on its wire, at most: what is cut into segments behind the counter is given each segment's headers."""
    told = subprocess.run(
        [*bed.command(host), "ip", "-j", "-s", "link", "show", "eth0"], capture_output=True, check=True
    )
    sent = json.loads(told.stdout)[0]["stats64"]["tx"]
    headers = OVERHEAD_BYTES * (sent["packets"] + sent["bytes"] / SEGMENT_BYTES)
    return float(8 * (sent["bytes"] + headers))


def of_rates(*rates: float, trunk: float | None = None) -> Cluster:
    racks = 2 if trunk else 1
    return Cluster(
        hosts=tuple(
            Host(name=f"h{at}", rack=f"rack{at % racks}", bandwidth_bit_per_s=rate)
            for at, rate in enumerate(rates)
        ),
        racks=tuple(Rack(name=f"rack{at}", uplink_bit_per_s=trunk) for at in range(racks)),
    )


@pytest.mark.parametrize("limit", [LIMIT_BIT_PER_S, 30e6])
def test_a_probe_keeps_to_its_limit(emulated: Emulated, limit: float) -> None:
    """Broken: probing would disturb the jobs of others: more than 1 % of a link of 10 Gbit/s, or than was allowed."""
    cluster = of_rates(TEN_GIGABIT, TEN_GIGABIT, TEN_GIGABIT)
    with emulated(cluster) as bed:
        ends: list[float] = []

        def keep(_step: Step) -> None:
            ends.append(time.monotonic())

        store = f"{bed.address('h0')}:{PORT}"
        before = [bits_sent(bed, host.name) for host in cluster.hosts]
        options = ProbeOptions(limit_bit_per_s=limit)
        start = time.monotonic()
        probe_hosts(agents(bed, cluster), store=store, serve=False, options=options, keep=keep)
        sent = [bits_sent(bed, host.name) - b for host, b in zip(cluster.hosts, before, strict=True)]
    # The last train of each series is paid for after the step: it may end up to a train above.
    allowed = limit * (ends[-1] - start) + TRAINS_BYTES * 8
    assert max(sent) <= allowed
    assert max(sent) >= 1.9 * TRAINS_BYTES * 8, "too little to have measured anything"
    if limit == LIMIT_BIT_PER_S:
        assert max(sent) <= 0.01 * TEN_GIGABIT * (ends[-1] - start)


@pytest.mark.parametrize("rates", ["trains", "tcp"])
def test_links_of_known_rates_are_found(emulated: Emulated, rates: Rates) -> None:
    """Broken: plans and orders would be made for a network that is not there."""
    told = (1e9, 5e8, 2e8, 5e7)
    cluster = of_rates(*told)
    with emulated(cluster) as bed:
        store = f"{bed.address('h0')}:{PORT}"
        found = probe_hosts(agents(bed, cluster), store=store, serve=False, options=ProbeOptions(rates=rates))
    for a, one in enumerate(told):
        for b, other in enumerate(told):
            if a != b:
                assert found.bandwidth_bit_per_s[a][b] == pytest.approx(min(one, other) * GOODPUT, rel=0.12)


def test_trains_find_a_narrow_trunk_and_its_racks(emulated: Emulated) -> None:
    """Broken: without TCP transfers the planner would believe that all pairs are equal."""
    cluster = of_rates(4e8, 4e8, 4e8, 4e8, trunk=1e8)
    with emulated(cluster) as bed:
        store = f"{bed.address('h0')}:{PORT}"
        found = probe_hosts(
            agents(bed, cluster), store=store, serve=False, options=ProbeOptions(rates="trains")
        )
    assert [host.rack for host in found.hosts] == ["rack0", "rack1", "rack0", "rack1"]
    for rack in found.racks:
        assert rack.uplink_bit_per_s == pytest.approx(1e8 * GOODPUT, rel=0.12)

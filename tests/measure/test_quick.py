"""The quick look of a job at its network, on real, small networks: namespaces with shaped links."""

import sys
from pathlib import Path
from statistics import median

import msgspec
import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack, both
from hocket.artefacts.network import IN, OUT
from hocket.planning import search
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

pytestmark = pytest.mark.hosts

RANK = Path(__file__).with_name("quick_rank.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
STAR = Cluster(
    hosts=tuple(
        Host(name=f"h{at}", rack="r", bandwidth_bit_per_s=rate)
        for at, rate in enumerate((2e8, 2e8, 5e7, 2e8))
    ),
    racks=(Rack(name="r"),),
)


def slower(cluster):
    """The same with a fifth of all rates: processes of eight hosts on two cores cannot fill eight links of 1 Gbit/s."""
    return msgspec.structs.replace(
        cluster,
        hosts=tuple(
            msgspec.structs.replace(each, bandwidth_bit_per_s=each.bandwidth_bit_per_s / 5)
            for each in cluster.hosts
        ),
        racks=tuple(
            msgspec.structs.replace(each, uplink_bit_per_s=each.uplink_bit_per_s / 5)
            for each in cluster.racks
        ),
    )


def looked(emulated, cluster, out):
    """What was found of a cluster, and in how many seconds."""
    with emulated(cluster) as testbed:
        hosts = [
            ProcessSpec(
                argv=[sys.executable, str(RANK), str(out)], host=host.name, prefix=testbed.command(host.name)
            )
            for host in cluster.hosts
        ]
        store = f"{testbed.address(cluster.hosts[0].name)}:29412"
        outcome = launch(hosts, settings=Settings(timeout_s=60, start_timeout_s=60), store=store, serve=False)
    assert outcome.code == 0
    found = msgspec.json.decode(out.read_bytes())
    return msgspec.convert(found["cluster"], Cluster), found["took_s"]


@pytest.mark.timing
def test_racks_and_their_trunk_are_found(emulated, tmp_path):
    """A job that nobody measured would send across a trunk what could stay in a rack."""
    told = slower(files.read(EXAMPLES / "two-racks-of-four.toml", Cluster))
    found, took_s = looked(emulated, told, tmp_path / "found.json")
    for a, b in zip(told.hosts, found.hosts, strict=True):
        for c, d in zip(told.hosts, found.hosts, strict=True):
            assert (a.rack == c.rack) == (b.rack == d.rack)
    for rack in found.racks:
        assert rack.uplink_bit_per_s == pytest.approx(told.racks[0].uplink_bit_per_s, rel=0.3)
    expected, plan = search.plan(told, None, 8), search.plan(found, None, 8)
    assert (plan.buckets[0].order, plan.label) == (expected.buckets[0].order, expected.label)
    # 2 s at five times these rates.
    assert took_s < 10


@pytest.mark.timing
def test_a_slow_host_slows_no_other(emulated, tmp_path):
    """A host with a slow card would be taken for a network that is slow for all."""
    # One look in thirty meets processes that wait for a processor.
    looks = [looked(emulated, STAR, tmp_path / f"{at}.json")[0] for at in range(3)]
    for at, host in enumerate(STAR.hosts):
        for side in (OUT, IN):
            found = median(both(each.hosts[at].bandwidth_bit_per_s)[side] for each in looks)
            assert found == pytest.approx(both(host.bandwidth_bit_per_s)[side], rel=0.3)

"""A cloud's tree instead of measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import ArtefactError
from hocket.planning.ordering.solve import Request, find_groups, solve
from hocket.tools.ordering import topology

AWS = {
    "Instances": [
        {
            "InstanceId": f"i-{index}",
            "AvailabilityZone": "zone",
            "NetworkNodes": ["nn-1", f"nn-2{index % 2}", f"nn-3{index % 4}"],
        }
        for index in range(8)
    ]
}
RACK = "example.com/rack"
NODES = {
    "kind": "List",
    "items": [
        {
            "kind": "Node",
            "metadata": {
                "name": f"n{index}",
                "labels": {
                    topology.REGION_AND_ZONE[0]: "r",
                    topology.REGION_AND_ZONE[1]: f"z{index % 2}",
                    RACK: f"k{index % 4}",
                },
            },
        }
        for index in range(8)
    ],
}
"""Nodes in two zones of two racks each, dealt out in turn."""
SLURM = """\
# written by a tool
SwitchName=s1 Nodes=node[01-02],node07
SwitchName=s2 Nodes=node[03-04]
SwitchName=top Switches=s[1-2]
"""


def test_instances_of_aws(tmp_path: Path) -> None:
    """Broken: a cluster in that cloud could not be ordered before it is measured."""
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(AWS))
    matrix = topology.read(path)
    near, far, farthest = (matrix.latency_s[0, other] for other in (4, 2, 1))
    assert near < far < farthest
    order = solve(matrix, Request()).order
    assert {frozenset(pair) for pair in (order[0:2], order[2:4], order[4:6], order[6:8])} == {
        frozenset((index, index + 4)) for index in range(4)
    }


def test_trees_of_slurm(tmp_path: Path) -> None:
    """Broken: what Topograph writes for other clouds could not be used."""
    path = tmp_path / "topology.conf"
    path.write_text(SLURM)
    matrix = topology.read(path, ["node03", "node01", "node04", "node07"])
    assert matrix.hosts == ("node03", "node01", "node04", "node07")
    assert find_groups(matrix) == ((0, 2), (1, 3))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("SwitchName=a Nodes=r[1-2]n[08-09]", {"a": ["r1n08", "r1n09", "r2n08", "r2n09"]}),
        ("SwitchName=a Nodes=n[1-2]-ib,m[03,07-08]x,login", {"a": ["n1-ib", "n2-ib", "m03x", "m07x", "m08x", "login"]}),
        ("SwitchName=a Nodes=n[1-2] Nodes=m[1-2]", {"a": ["n1", "n2", "m1", "m2"]}),
        ("switchname=a NODES=n[1-2] LinkSpeed=900", {"a": ["n1", "n2"]}),
        ("SwitchName=a \\\n  Nodes=n[1-2] # of one rack\n", {"a": ["n1", "n2"]}),
        ("\ufeffSwitchName=a Nodes=x[1-2]y[3-4]z[5-6]\r\n",
         {"a": [f"x{i}y{j}z{k}" for i in (1, 2) for j in (3, 4) for k in (5, 6)]}),
        ("SwitchName=s1x0 Nodes=a,b\nSwitchName=s1x1 Nodes=c,d\nSwitchName=top Switches=s[1]x[0-1]",
         {"s1x0": ["a", "b"], "s1x1": ["c", "d"]}),
    ],
)  # fmt: skip
def test_lists_are_those_of_slurm(tmp_path: Path, lines: str, found: dict[str, list[str]]) -> None:
    """Broken: a second range would invent hosts, and a second list be dropped."""
    path = tmp_path / "topology.conf"
    path.write_text(lines, encoding="utf-8")
    matrix = topology.read(path)
    assert matrix.hosts == tuple(host for hosts in found.values() for host in hosts)
    groups = (
        {frozenset(matrix.hosts[at] for at in group) for group in find_groups(matrix)}
        if len(found) > 1
        else set()
    )
    assert groups == ({frozenset(hosts) for hosts in found.values()} if len(found) > 1 else set())


def test_labels_of_nodes_are_levels_from_the_top_down(tmp_path: Path) -> None:
    """Broken: an order would cross zones, or racks, more often than it must."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    zones = topology.read(path)
    racks = topology.read(path, labels=[topology.REGION_AND_ZONE[1], RACK])
    assert zones.latency_s[0][2] == zones.latency_s[0][4] < zones.latency_s[0][1]
    assert racks.latency_s[0][4] < racks.latency_s[0][2] < racks.latency_s[0][1]
    order = [racks.hosts[at] for at in solve(racks, Request(algorithm="ring")).order]
    places = [(int(name[1:]) % 2, int(name[1:]) % 4) for name in order]
    assert sum(a != b for a, b in zip(places, places[1:] + places[:1], strict=True)) == 4, (
        "each rack is left once"
    )


def test_labels_that_contradict_a_measurement_are_named(tmp_path: Path) -> None:
    """Broken: an order by labels that lie would cross trunks all the time, and nobody would learn why it is slow."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))

    def cluster(racks: str) -> Cluster:
        hosts = (Host(name=f"n{at}", rack=rack, bandwidth_bit_per_s=1e9) for at, rack in enumerate(racks))
        return Cluster(hosts=tuple(hosts))

    by_rack = [topology.REGION_AND_ZONE[1], RACK]
    for truth in ("abcdabcd", "abababab", "aaaaaaaa"):
        assert topology.doubts(path, cluster(truth), by_rack) == []
    # Zones are above racks.
    assert topology.doubts(path, cluster("abcdabcd")) == []
    one, other = topology.doubts(path, cluster("abcdbacd"), by_rack)
    assert "has n0, n4 below one switch, z0/k0, and the cluster has them in racks a, b" in one
    assert "n1, n5" in other


def test_a_node_without_the_label_is_named(tmp_path: Path) -> None:
    """Broken: a node that nobody has labelled would stand in a rack of its own."""
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(NODES))
    with pytest.raises(ArtefactError, match=r"node `n0` has no label no\.such/label\nhint: name the labels"):
        topology.read(path, labels=[RACK, "no.such/label"])
    with pytest.raises(ArtefactError, match="which tells none nearer than another"):
        topology.read(path, labels=[topology.REGION_AND_ZONE[0]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"items": []}', "there are no nodes"),
        ('{"items": [{"kind": "Pod", "metadata": {"name": "a", "labels": {}}}]}', "item 1 is no node"),
        (json.dumps({"items": [NODES["items"][0]] * 2}), "`n0` is there twice"),
        ("{", "damaged or truncated"),
        ("{}", "no `Instances`"),
        ('{"Instances": [{"InstanceId": "i"}]}', "instance 1 has no"),
        ('{"Instances": [3]}', "instance 1 has no"),
        (json.dumps({"Instances": [AWS["Instances"][0]] * 2}), "`i-0` is there twice"),
        ("nonsense", "line 1: `nonsense` is not of the form"),
        ("SwitchName=a Nodes=b[9-1]", r"line 1: range `9-1` in `\[9-1\]` is empty"),
        ("SwitchName=a Nodes=b[1-2", r"line 1: `b\[1-2` is not a list of hosts"),
        ("SwitchName=a Nodes=b[x]", "line 1: `x` in"),
        ("SwitchName=a Nodes=b, c", "line 1: `SwitchName=a Nodes=b, c` is not of the form"),
        ("SwitchName=a Nodes=b,,c", "line 1"),
        ("SwitchName= Nodes=b", "line 1"),
        ("SwitchName=a SwitchName=b Nodes=c", "line 1"),
        ("\nSwitchName=a \\\n Nodes=b \\\n Nodes=b", "line 2: `b` is below two switches"),
        ("SwitchName=a Nodes=n[1-60000]", "at most topology.HOSTS_MAX"),
        ("SwitchName=a Nodes=n[1-99999999]", "line 1: range"),
        ("SwitchName=a Nodes=b,b", "`b` is below two switches"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=b Nodes=c", "is above itself"),
        ("SwitchName=a Switches=b", "names no host"),
    ],
)
def test_wrong_trees_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """Broken: a damaged tree would give an order, or a traceback."""
    path = tmp_path / "topology"
    path.write_text(text)
    with pytest.raises(ArtefactError, match=said):
        topology.read(path)


def test_hosts_that_the_tree_lacks_are_named(tmp_path: Path) -> None:
    """Broken: one cluster's tree would order another."""
    path = tmp_path / "topology.conf"
    path.write_text(SLURM)
    with pytest.raises(ArtefactError, match="it has no host other"):
        topology.read(path, ["node01", "other"])

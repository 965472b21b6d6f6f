"""A cloud's tree instead of measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.errors import ArtefactError
from hocket.planning.ordering import topology
from hocket.planning.ordering.solve import Request, find_groups, solve

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
    ("text", "said"),
    [
        ("{", "damaged or truncated"),
        ("{}", "no `Instances`"),
        ('{"Instances": [{"InstanceId": "i"}]}', "instance 1 has no"),
        ('{"Instances": [3]}', "instance 1 has no"),
        (json.dumps({"Instances": [AWS["Instances"][0]] * 2}), "`i-0` is there twice"),
        ("nonsense", "line 1: `nonsense` is not of the form"),
        ("SwitchName=a Nodes=b[9-1]", "line 1: `9-1` is not a range"),
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

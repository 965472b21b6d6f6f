"""`hocket verify` of plans whose buckets go different ways."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from hocket._native import Program
from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local, localized
from hocket.artefacts.plan import AllReduce, Plan, Served, Traced
from hocket.cli.verify import command
from hocket.errors import UsageError
from hocket.planning import sites
from hocket.planning.buckets import buckets, plan_of
from tests.planning.planner_inputs import alternating


def mixed(policy: str, world: int = 4) -> Plan:
    routes = (AllReduce(algorithm="ring"), Traced(policy=policy))
    made = [
        buckets([[Gradient(f"w{at}", (100,), "f32")]], route, range(world))[0]
        for at, route in enumerate(routes)
    ]
    return msgspec.structs.replace(plan_of(made, world, label=""), promise="lossy")


def verify(path: Path, plan: Plan, *arguments: str) -> Result:
    files.write(path / "plan.json", plan)
    files.write(path / "cluster.toml", alternating())
    return CliRunner().invoke(command, [str(path / "plan.json"), *arguments])


def test_policies_of_a_plan_are_proven_too(tmp_path: Path) -> None:
    """Broken: a plan would pass of which some buckets were never looked at."""
    done = verify(tmp_path, mixed("two_level"), "--json", "--cluster", str(tmp_path / "cluster.toml"))
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["world"], told["contract"], len(told["buckets"])) == (4, "mean", 2)
    printed = verify(tmp_path, mixed("top_k"), "--after", "lower", "--bucket", "1").output
    assert "top_k.f32" in printed
    assert json.loads(verify(tmp_path, mixed("top_k"), "--json").stdout)["contract"] == "mean or same"


def test_buckets_on_servers_are_proven_too(tmp_path: Path) -> None:
    """Broken: nobody could look at what workers and servers send, and others' buckets would be proven for the servers, too."""
    served, ring = mixed("empty", 2).buckets[::-1]
    served = msgspec.structs.replace(served, route=Served(servers=(2,)), codec="f16", codec_links=((0, 2),))
    plan = msgspec.structs.replace(plan_of([served, ring], 3, label=""), workers=(0, 1))
    done = verify(tmp_path, plan, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["world"], told["contract"], len(told["buckets"])) == (3, "mean or none", 2)
    assert "as f16 to 2" in verify(tmp_path, plan, "--after", "encode", "--bucket", "0").output


def test_means_of_sites_are_proven_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a plan would pass although nobody looked at what travels inside its sites in every step."""
    proven, means = [], sites.means

    def noted(index: int, plan: Plan, hosts: Sequence[str]) -> Program:
        proven.append((index, tuple(hosts)))
        return means(index, plan, hosts)

    monkeypatch.setattr(sites, "means", noted)
    plan = localized(mixed("two_level"), Local(every=3, inside=((0, 2), (1, 3))))
    done = verify(tmp_path, plan, "--json", "--cluster", str(tmp_path / "cluster.toml"))
    assert done.exit_code == 0, done.output
    hosts = tuple(host.name for host in alternating().hosts)
    assert proven == [(0, hosts), (1, hosts)]


def test_what_cannot_be_verified_so_is_refused(tmp_path: Path) -> None:
    """Broken: options would be taken that change nothing, or programs proven for other hosts."""
    cluster = ("--cluster", str(tmp_path / "cluster.toml"))
    ring = plan_of(mixed("empty").buckets[:1], 4, label="")
    for plan, arguments, said in (
        (mixed("topk"), (), "there is no policy `topk`"),
        (mixed("empty", 3), cluster, "for 3 ranks, the cluster has 4 slots"),
        (ring, cluster, "--cluster is for policies and sites, --tuning for policies"),
    ):
        error = verify(tmp_path, plan, *arguments).exception
        assert isinstance(error, UsageError)
        with pytest.raises(UsageError, match=said):
            raise error

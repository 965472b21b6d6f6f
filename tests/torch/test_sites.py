"""Sites that step alone, inside which ranks step together: equal to a reference of one process, and the same bits in a site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.settings import Settings
from tests.support import ranks

torch = pytest.importorskip("torch")

from hocket.artefacts import files  # noqa: E402  # what follows needs torch
from hocket.artefacts.cluster import Cluster, Host, Rack  # noqa: E402
from tests.torch.sites_scripts import SITES  # noqa: E402

pytestmark = pytest.mark.late

SCRIPTS = "tests.torch.sites_scripts"


def returned(script: str, tmp_path: Path, *arguments: str, world: int = 4, **settings: Any) -> Any:
    given = Settings(timeout_s=30, start_timeout_s=30, **settings)
    ended = ranks.run(f"{SCRIPTS}:{script}", world, tmp_path, *arguments, settings=given)
    assert ended.outcome.code == 0, ended.output
    return ended.returned


def alike(of_rank: Any, world: int = 4) -> bool:
    """Return whether ranks of a site return the same, and sites differ."""
    own = [[of_rank[rank] for rank in site] for site in SITES[world]]
    firsts = [site[0] for site in own]
    return all(each == site[0] for site in own for each in site) and firsts.count(firsts[0]) == 1


@pytest.mark.parametrize(
    ("script", "world"),
    [("against_the_reference", 4), ("against_the_reference", 5), ("on_a_hostile_device", 4)],
)
def test_sites_train_what_the_reference_does(script: str, world: int, tmp_path: Path) -> None:
    """Broken: ranks of a site would go apart, or an exchange would count a site's progress otherwise than by its ranks."""
    found = returned(script, tmp_path, world=world)
    assert len(found[0]) > 4
    for own in found:
        assert [each[:4] for each in own if not max(each[1:4]) < 1e-9] == []
    for of_case in zip(*found, strict=True):
        assert all(each[4] == of_case[0][4] for each in of_case)
        if "every=1," not in of_case[0][0]:
            assert alike([each[5] for each in of_case], world), of_case[0][0]


def test_a_training_goes_on_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """Broken: a resumed job would train on to other bits, or its sites would go apart."""
    assert returned("resumed", tmp_path) == [[True, True]] * 4


def test_gradients_are_the_mean_of_their_site(tmp_path: Path) -> None:
    """Broken: accumulation, a GradScaler or layers that some ranks use would train otherwise than in step."""
    for distances, unused in returned("ways_of_gradients", tmp_path):
        assert len(distances) > 20
        assert max(distances) < 1e-12
        assert unused


def test_progress_may_be_rounded(tmp_path: Path) -> None:
    """Broken: a policy that keeps what it rounds would let ranks of a site go apart."""
    found = returned("codecs", tmp_path)
    for name in ("top_k", "int8"):
        assert alike([each[name][0] for each in found]), name
        assert len({each[name][1] for each in found}) == 1, name


def test_other_schedules_follow_in_the_same_sites(tmp_path: Path) -> None:
    """Broken: ranks of a site would stop stepping together when the guard lets sites make more steps alone."""
    found = returned("grown", tmp_path)
    assert len(set(found[0][0])) > 1
    assert all(steps == found[0][0] for steps, _ in found)
    assert alike([digests for _, digests in found])


def test_a_site_is_as_fast_as_its_slowest_rank(tmp_path: Path) -> None:
    """Broken: ranks of a site would make different numbers of steps, and wait for one another for ever."""
    found = returned("paced", tmp_path, guard="off")
    assert alike(found)
    assert len(found[2][0]) < len(found[0][0]) / 2


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    """Broken: the others would wait until the time-out, for nobody knows whom."""
    ended = ranks.run(f"{SCRIPTS}:killed", 4, tmp_path, settings=Settings(timeout_s=60, start_timeout_s=60))
    assert ended.outcome.code == 137, ended.output
    assert json.loads((tmp_path / "2.told").read_text()) == [3, 5]
    for rank in (0, 1):
        assert json.loads((tmp_path / f"{rank}.told").read_text())[0] == 3


@pytest.mark.parametrize(
    ("hosts", "where", "sites"), [("aabb", "host", [[0, 1], [2, 3]]), ("abcd", "rack", [[0, 2], [1, 3]])]
)
def test_sites_are_hosts_or_racks(hosts: str, where: str, sites: list[list[int]], tmp_path: Path) -> None:
    """Broken: ranks that are next to one another would be in different sites."""
    cluster = tmp_path / "cluster.toml"
    racks = tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "xy")
    made = tuple(Host(name=name, rack="xy"[at % 2], bandwidth_bit_per_s=1e9) for at, name in enumerate(hosts))
    files.write(cluster, Cluster(hosts=made, racks=racks)) if where == "rack" else None
    settings = {"cluster": str(cluster)} if where == "rack" else {}
    found = returned("by_hosts", tmp_path, hosts, where, **settings)
    assert [each[0] for each in found] == [sites] * 4
    for site in sites:
        assert found[site[0]][1] == found[site[1]][1]


def test_a_plan_says_it_and_a_model_is_distributed_again(tmp_path: Path) -> None:
    """Broken: plan files and the argument would be two kinds of training, or programs of sites would outlive them."""
    assert returned("by_a_plan", tmp_path) == [0.0] * 4
    assert len(set(returned("again", tmp_path))) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "rack",
            "local: inside='rack': all ranks are in one rack, so they would step together and exchange in vain",
        ),
        (
            "grace",
            "local: inside, and grace_s=2: ranks of a site wait for one another in each step, and what a thread sends of a "
            "late one would not be what its site has",
        ),
        (
            "weights",
            "local: inside, late=1 and weights='samples': ranks go on from what each of them has sent, which is rounded by its "
            "own weight, so those of a site would go apart",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, said: str, tmp_path: Path) -> None:
    """Broken: ranks would train otherwise than was asked for, or a traceback would not say what is wrong."""
    assert returned("refused", tmp_path, name) == [said] * 4

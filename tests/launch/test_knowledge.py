"""What a job leaves for the next one on the same hosts: nothing of other hosts, other models or another promise may come back."""

import dataclasses
import logging
import os

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.promise import EXACT, ROUNDED
from hocket.artefacts.tuning import Tuning
from hocket.cli.main import hocket
from hocket.job.known import knowledge
from hocket.job.known.cache import Cache
from hocket.job.known.knowledge import Known, Memory
from hocket.job.rendezvous import join
from hocket.planning import search
from hocket.settings import Settings
from hocket.tools.doctor import knowledge as shown
from tests.planning.planner_inputs import model
from tests.support import ranks

PROFILE = model()
GRADIENTS = [Gradient(each.name, each.shape, each.dtype) for each in PROFILE.gradients]
CLUSTER = Cluster(hosts=(Host(name="a", bandwidth_bit_per_s=1e9),))
PARTS = {
    "cluster": CLUSTER,
    "profile": PROFILE,
    "tuning": Tuning(measured_at="now", machine="this one"),
    "plan": search.plan(CLUSTER, PROFILE, 1),
}


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("HOCKET_CACHE", str(tmp_path / "cache"))
    return Settings(cache=str(tmp_path / "cache"), host="a")


def changed(settings, **changes):
    return dataclasses.replace(settings, **changes)


def recalled(settings, gradients=GRADIENTS, promise=EXACT):
    with join(settings, environment={}) as job:
        return Memory(job).recall(gradients, promise)


def keep(settings, parts=PARTS):
    with join(settings, environment={}) as job:
        Memory(job).keep(GRADIENTS, EXACT, parts)


def there(known):
    return {kind for kind in PARTS if getattr(known, kind) is not None}


def test_the_next_job_starts_from_what_this_one_knew(settings):
    """The second job on the same hosts would measure and plan for as long as the first."""
    assert recalled(settings) == Known()
    keep(settings)
    known = recalled(settings)
    assert {kind: getattr(known, kind) for kind in PARTS} == PARTS
    assert set(known.digests) == set(known.kept_at) == set(PARTS)
    keep(settings, {"cluster": Cluster(hosts=(Host(name="a", bandwidth_bit_per_s=2e9),))})
    again = recalled(settings)
    assert again.digests["cluster"] != known.digests["cluster"]
    assert again.digests["plan"] == known.digests["plan"]


def test_another_job_is_another_one(settings):
    """A plan would be recalled for other gradients, or one that rounds where nothing may be rounded."""
    keep(settings)
    larger = [*GRADIENTS[:-1], Gradient("p7", (100_001,), "f32")]
    assert there(recalled(settings, larger)) == {"cluster", "tuning"}
    assert there(recalled(settings, GRADIENTS[::-1])) == {"cluster", "tuning"}
    assert there(recalled(settings, promise=ROUNDED)) == {"cluster", "tuning", "profile"}
    assert there(recalled(changed(settings, host="b"))) == set()


def test_hosts_of_equal_names_are_not_the_same_hosts(settings, monkeypatch):
    """Two clusters whose hosts are called node0, node1 … would be taken for one."""
    monkeypatch.setattr("hocket.job.store.interfaces.hardware", lambda _: "02:fc:00:00:00:01")
    keep(settings)
    assert there(recalled(settings)) == set(PARTS)
    monkeypatch.setattr("hocket.job.store.interfaces.hardware", lambda _: "02:fc:00:00:00:02")
    assert there(recalled(settings)) == set()


@pytest.mark.parametrize("damage", ["bits", "schema"])
def test_what_cannot_be_used_is_dropped(settings, caplog, damage):
    """A damaged file, or one of another schema, would end every job on these hosts."""
    keep(settings)
    kept = Cache.of(settings)
    found = next(each for each in knowledge.kept(kept) if each.entry.kind == "plan")
    if damage == "bits":
        found.path.write_bytes(found.path.read_bytes()[:-1])
    else:
        content = msgspec.structs.replace(found.entry, value=msgspec.Raw(b'{"shape": "another"}'))
        kept.put(found.path.name.removesuffix(".hkcache"), msgspec.json.encode(content))
    with caplog.at_level(logging.WARNING, "hocket.knowledge"):
        assert there(recalled(settings)) == {"cluster", "profile", "tuning"}
    assert ("the plan that was kept for these hosts is dropped" in caplog.text) == (damage == "schema")
    assert not found.path.exists()


def test_a_cache_that_keeps_nothing_is_no_failure(settings):
    """A read-only home would end every job at its first plan."""
    nothing = changed(settings, cache_bytes=0)
    keep(nothing)
    assert recalled(nothing) == Known()


def test_all_ranks_get_what_rank_0_has(tmp_path):
    """Ranks would start with different plans, and hang."""
    given = Settings(cache=str(tmp_path / "cache"), start_timeout_s=30)
    for wanted in (None, PARTS["plan"].label):
        ended = ranks.run("tests.launch.test_knowledge:one_rank", 3, tmp_path, settings=given)
        assert ended.outcome.code == 0, ended.output
        assert ended.returned == [wanted] * 3


def one_rank():
    """The label of the plan that was recalled; then keeps one."""
    settings = Settings.from_environment()
    if settings.rank:
        settings = changed(settings, cache=os.devnull)
    with join(settings) as job:
        memory = Memory(job)
        known = memory.recall(GRADIENTS, EXACT)
        memory.keep(GRADIENTS, EXACT, PARTS)
        job.store.barrier("kept", job.rank, job.world, 30)
        return None if known.plan is None else known.plan.label


def test_the_doctor_shows_and_clears_it(settings):
    """Nobody could see what a job starts from, or start without it."""
    keep(settings)
    Cache.of(settings).put("program", b"compiled")
    found = shown.known()
    assert {each.kind for each in found} == set(PARTS)
    assert {each.about for each in found} == {
        "a",
        "a: 1 ranks, 8 gradients of 0.8 M elements",
        "a: 1 ranks, 8 gradients of 0.8 M elements, exact",
    }
    assert all(each.age for each in found)
    done = CliRunner().invoke(hocket, ["doctor", "--forget"])
    assert done.output == "Removed 4 entries.\n"
    assert shown.known() == []
    assert Cache.of(settings).get("program") == b"compiled"

"""FSDP2 inside hosts, and Hocket between them: as native HSDP, to the bit where the order of summation cannot differ."""

from types import SimpleNamespace

import msgspec
import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import AllReduce, Bucket, Part, Served
from hocket.errors import ArtefactError, UsageError
from hocket.planning.buckets import plan_of
from hocket.policy import bucketing
from hocket.settings import Settings
from hocket.training.programs.among import Among, ByPlan, check_plan
from tests.support import ranks

pytestmark = pytest.mark.hosts

SCRIPTS = "tests.torch.hsdp_scripts"
SETTINGS = Settings(timeout_s=60, start_timeout_s=60)


def job(function, world, tmp_path, *arguments, settings=SETTINGS):
    store = str(tmp_path / "store")
    return ranks.run(f"{SCRIPTS}:{function}", world, tmp_path, store, *arguments, settings=settings)


def returned(function, world, tmp_path, *arguments, settings=SETTINGS):
    ended = job(function, world, tmp_path, *arguments, settings=settings)
    assert ended.outcome.code == 0, ended.output
    return ended.returned


def told(tmp_path, cluster):
    """Settings of a job that knows its network."""
    files.write(tmp_path / "cluster.toml", cluster)
    return Settings(cluster=str(tmp_path / "cluster.toml"), timeout_s=60, start_timeout_s=60)


def test_two_replicas_train_as_native_hsdp_to_the_bit(tmp_path):
    """Broken: gradients that native HSDP would not make, or that are used before their means are there."""
    for found in returned("beside_native", 4, tmp_path):
        for way, (difference, moved) in found.items():
            assert difference == 0.0, way
            assert moved > 1e-3, way


def test_three_replicas_train_as_native_hsdp(tmp_path):
    """Broken: means of two replicas alone, or sums."""
    ways = "SGD,clipped,accumulated in shards,one unit"
    for found in returned("beside_native", 6, tmp_path, "gloo", ways):
        for way, (difference, moved) in found.items():
            assert difference <= 1e-6, way
            assert moved > 1e-3, way


def test_replicas_may_reduce_by_a_library(tmp_path):
    """Broken: a library's communicator would wait for ranks of other shards, or number the replicas in another order."""
    ways = "SGD,accumulated,blocks left out"
    for found in returned("beside_native", 6, tmp_path, "gloo", ways, "library"):
        for way, (difference, moved) in found.items():
            assert difference <= 1e-6, way
            assert moved > 1e-3, way


def test_hosts_may_shard_by_the_backend_of_hocket(tmp_path):
    """Broken: two jobs in one process, that of the backend and that of the hook, take one another's messages."""
    for found in returned("beside_native", 4, tmp_path, "hocket", "SGD,accumulated"):
        assert [difference for difference, _ in found.values()] == [0.0, 0.0]


@pytest.mark.parametrize(("what", "share", "apart"), [("int8", 0.0, 0.02), ("promise", 0.999, 1e-3)])
def test_shards_are_rounded_as_promised(what, share, apart, tmp_path):
    """Broken: a policy or a promise that changes nothing, without a word, or replicas that go apart by rounding."""
    slow = Cluster(hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e6, slots=2) for at in range(2)))
    for fits, distance, alike in returned("rounded", 4, tmp_path, what, settings=told(tmp_path, slow)):
        assert fits >= share
        assert 0 < distance < apart
        assert alike


def test_replicas_are_ordered_rack_by_rack(tmp_path):
    """Broken: a ring that crosses the slow link between racks at each hop."""
    racks = Cluster(
        hosts=tuple(Host(name=f"h{at}", rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at in range(4)),
        racks=tuple(Rack(name=name, uplink_bit_per_s=1e7) for name in "ab"),
    )
    for orders in returned("one_rank_hosts", 4, tmp_path, settings=told(tmp_path, racks)):
        assert len(orders) == 4
        for order in orders:
            assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}


def test_a_plan_goes_out_and_comes_back_changed(tmp_path):
    """Broken: a plan that is given, and not followed."""
    for same, algorithms, difference, early in returned("planned", 4, tmp_path, str(tmp_path / "plan.json")):
        assert same
        assert algorithms == ["halving_doubling"]
        assert difference == 0.0
        assert early[0] == "UsageError"


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path):
    """Broken: state dicts that miss a shard, or a hook that a loaded model does not take."""
    assert returned("saved", 4, tmp_path, str(tmp_path / "saved")) == [0.0] * 4


SAID = {
    "not sharded": "fully_shard(model, mesh=…) first",
    "promise": "`exakt`: known are exact, rounded",
    "merged": "merged or late gradients",
    "timer": "FSDP2's hook has no epochs",
    "class": "the policy is of type",
    "meta": "have no values yet\nhint: call it after model.to_empty",
    "elastic": "HOCKET_COORDINATOR, but the ranks of FSDP2 stay as they are",
    "both": "a plan and a policy",
    "less promised": "`exact` does not allow loss=any",
    "twice": "`model` has the hook already",
    "begun": "replicas went apart in that backward",
}


def test_mistakes_of_a_call_are_named_with_what_to_do(tmp_path):
    """Broken: a training that goes wrong later, or hangs."""
    for said in returned("wrong", 4, tmp_path):
        assert said.keys() == SAID.keys()
        for mistake, words in SAID.items():
            kind, text = said[mistake]
            assert kind == "UsageError", (mistake, text)
            assert words in text, mistake
            assert "hint: " in text or mistake == "promise", mistake


@pytest.mark.parametrize(
    ("mistake", "kind", "words"),
    [
        ("native", "UsageError", 'hint: fully_shard(model, mesh=mesh["shard"])'),
        ("one mesh", "UsageError", "FSDP2 itself reduces over all, and no shard has replicas"),
        ("seed", "ReplicaError", "begins with another `head.weight` than rank"),
        ("arguments", "RendezvousError", "the same arguments on all ranks"),
    ],
)
def test_mistakes_of_all_ranks_are_named(mistake, kind, words, tmp_path):
    """Broken: a job that hangs or trains replicas apart."""
    for found in job("wrong_together", 4, tmp_path, mistake).returned:
        assert found is not None
        assert found[0] == kind, found
        assert words in found[1]


def test_plans_of_other_models_are_refused():
    """Broken: a unit that no bucket has, or ranks that the plan does not know."""
    among = Among(
        SimpleNamespace(job=SimpleNamespace(world=4, hosts=("a", "a", "b", "b"))), (0, 2), "FSDP2's hook"
    )
    with pytest.raises(UsageError, match="the plan is for 3 ranks, and each shard has 2 replicas\nhint: "):
        check_plan(plan_of([], 3, label=""), among, [])
    with pytest.raises(
        ArtefactError, match=r"each of 'model', 'head', and the plan differs in `head`\nhint: "
    ):
        check_plan(plan_of([], 2, label=""), among, ["model", "head"])
    served = Bucket(
        parts=(Part(variable="model"),),
        elements=4,
        dtype="f32",
        route=Served(servers=(1,)),
        order=(0, 1),
        priority=0,
    )
    with pytest.raises(UsageError, match="a bucket is `served`"):
        check_plan(plan_of([served], 2, label=""), among, ["model"])
    other = msgspec.structs.replace(served, route=AllReduce(algorithm="ring"))
    make = ByPlan(among, plan_of([other], 2, label=""))
    check_plan(make.plan(), among, ["model"])
    gradient = bucketing.Gradient("model", (6,), "f32", 0, 0)
    with pytest.raises(UsageError, match="`model` has 4 elements of f32, and came with 6 of f32\nhint: "):
        make(bucketing.Bucket((gradient,), 0), "model")


def test_a_killed_rank_is_named_on_all_others(tmp_path):
    """Broken: ranks that hang, or blame one another."""
    ended = job("lost", 4, tmp_path, "hocket", settings=Settings(timeout_s=20, start_timeout_s=60))
    for rank in range(3):
        kind, named, text = ended.returned[rank]
        assert kind in ("PeerError", "BackendPeerError"), text
        assert named == 3, (rank, text)


def test_a_killed_rank_is_named_beside_gloo(tmp_path):
    """Broken: replicas on other hosts, whose own groups of Gloo are whole, wait until their time is up."""
    ended = job("lost", 4, tmp_path, "gloo", settings=Settings(timeout_s=20, start_timeout_s=60))
    said = [tuple(ended.returned[rank][:2]) for rank in range(2)]
    # The first of the two that raises ends Gloo's group of their host, in which the other may be just then.
    assert ("PeerError", 3) in said, ended.returned
    assert set(said) <= {("PeerError", 3), ("RuntimeError", None)}, ended.returned
    # Its own host's group is Gloo's, which names nobody.
    assert ended.returned[2] is not None, ended.output


def test_hosts_that_run_other_blocks_are_told(tmp_path):
    """Broken: a hang, or means of other blocks."""
    settings = Settings(timeout_s=5, start_timeout_s=60)
    ended = job("out_of_step", 4, tmp_path, settings=settings)
    assert any(found is not None and found[0] == "PeerError" for found in ended.returned), ended.output
    assert "blocks.2" in str(ended.returned)

"""HOCKET_CLUSTER: the default plan is made for it, and policies see it, under `distribute` and as DDP's hook."""

from pathlib import Path

import pytest
import torch

import hocket.torch as hk
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.needs import check_kept, needs_of
from hocket.artefacts.promise import EXACT, ROUNDED, Promise
from hocket.artefacts.trace import read
from hocket.errors import UsageError
from hocket.parameter_server.plan import served_plan
from hocket.planning import search
from hocket.planning.default import by_cluster
from hocket.policies import TopK
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import ranks, warm

GRADIENTS = [Gradient("w", (1_000_000,), "f32")]


def racks(names="abab"):
    """Hosts of two racks in turns, with a narrow trunk."""
    return Cluster(
        hosts=tuple(Host(name=f"h{at}", rack=rack, bandwidth_bit_per_s=1e9) for at, rack in enumerate(names)),
        racks=tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab"),
    )


def settings(tmp_path, cluster, **others):
    files.write(tmp_path / "cluster.toml", cluster)
    return Settings(timeout_s=30, start_timeout_s=30, cluster=str(tmp_path / "cluster.toml"), **others)


def test_ranks_that_alternate_racks_get_a_plan_that_does_not(tmp_path):
    """The user would pay for the trunk once per rank, with the file that says so at hand."""
    trace = tmp_path / "trace"
    given = settings(tmp_path, racks(), trace=str(trace))
    ended = ranks.run("tests.torch.cluster_scripts:plain", 4, tmp_path, settings=given)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [[1.5, 1.5]] * 4
    plan = read(trace).run.plan
    assert {bucket.order for bucket in plan.buckets} == {(0, 2, 1, 3)}
    assert plan.buckets[0].route.sizes == (2, 2)
    assert "for this cluster" in plan.reason


@pytest.mark.parametrize("codec", ["f16", "bf16"])
def test_gradients_are_rounded_where_that_is_allowed(tmp_path, codec):
    """A user who allows f16 on slow links would not get it, or on links of the wrong ranks."""
    trace = tmp_path / "trace"
    given = settings(tmp_path, racks(), trace=str(trace), promise=f"rounded,codec={codec}")
    ended = ranks.run("tests.torch.cluster_scripts:plain", 4, tmp_path, settings=given)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [[1.5, 1.5]] * 4
    bucket = read(trace).run.plan.buckets[0]
    assert (bucket.codec, bucket.codec_links) == (codec, ((0, 1), (1, 0)))


def test_what_promises_less_than_was_asked_for_is_refused(tmp_path):
    """A user who asked for exact results would get rounded or delayed ones from a file or a variable."""
    plan = search.plan(racks(), None, 4, promise=ROUNDED)
    files.write(tmp_path / "plan.json", plan)
    given = settings(tmp_path, racks(), plan=str(tmp_path / "plan.json"), promise="exact")
    ended = ranks.run("tests.torch.cluster_scripts:plain", 4, tmp_path, settings=given)
    assert ended.outcome.code != 0
    said = f"plan `{plan.label}`: bucket 0 has f16 on links: `exact` does not allow codec=f16"
    assert said in ended.output


def test_policies_and_stale_servers_are_less_than_exact():
    """A lossy policy would train under a promise of exact results."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    alone = Settings(rank=0, world=1)
    with pytest.raises(
        UsageError, match="policy TopK: its code may round or leave out anything: `rounded` does not"
    ):
        hk.distribute(layer, optimizer, policy=TopK(), promise="rounded", settings=alone)
    stale = served_plan([Gradient("w", (2, 3), "f32")], 2, hk.ParameterServer(servers=1, staleness=2))
    with pytest.raises(UsageError, match="is served with staleness: `exact` does not allow delay=2"):
        check_kept(EXACT, needs_of(stale), "the plan")
    check_kept(Promise(delay=2), needs_of(stale), "the plan")
    with pytest.raises(
        UsageError, match="local: ranks step alone between exchanges: `lossy` does not allow local=16"
    ):
        hk.distribute(layer, optimizer, local=hk.Local(every=16), promise="lossy", settings=alone)
    hk.distribute(layer, optimizer, policy=TopK(), promise="exact,loss=any", settings=alone)


@pytest.mark.timing
def test_two_lines_find_the_racks_by_themselves(emulated, tmp_path):
    """A user with nothing but the two lines would pay for the trunk once per rank."""
    told = racks()
    settings = Settings(timeout_s=30, start_timeout_s=30, trace=str(tmp_path / "trace"))
    script = tmp_path / "train.py"
    script.write_text("import cluster_scripts; cluster_scripts.plain()")
    with emulated(told) as testbed:
        specs = [
            ProcessSpec(
                argv=warm.command(script),
                host=host.name,
                prefix=testbed.command(host.name),
                environment={"PYTHONPATH": str(Path(__file__).parent)},
            )
            for host in told.hosts
        ]
        store = f"{testbed.address('h0')}:29413"
        outcome = launch(specs, settings=settings, store=store, serve=False)
    assert outcome.code == 0
    plan = read(tmp_path / "trace").run.plan
    assert {bucket.order for bucket in plan.buckets} == {(0, 2, 1, 3)}
    assert plan.buckets[0].route.sizes == (2, 2)


def test_the_hook_of_ddp_sees_the_cluster(tmp_path):
    """`ddp_hook(PartialF16())` would never compress, without a word."""
    slow = Cluster(
        hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e9 if at else 1e8) for at in range(3))
    )
    ended = ranks.run("tests.torch.cluster_scripts:hook", 3, tmp_path, settings=settings(tmp_path, slow))
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [1.0] * 3
    alike = tmp_path / "alike"
    alike.mkdir()
    ended = ranks.run("tests.torch.cluster_scripts:hook", 3, alike)
    assert ended.outcome.code == 0, ended.output
    assert max(ended.returned) < 0.5


def test_ranks_need_not_fill_the_clusters_slots():
    """A job that listed its hosts in another order, or uses some of them, would get an order of the wrong ranks."""
    choice = by_cluster(GRADIENTS, ["h3", "h0", "h2", "h0"], racks("abab"))
    blocks = [{choice.order[at] for at in range(3)}, {choice.order[3]}]
    assert blocks == [{1, 2, 3}, {0}] or [{choice.order[0]}, {*choice.order[1:]}] == [{0}, {1, 2, 3}]


def test_a_host_that_the_cluster_does_not_have_is_named():
    """The plan would be made for other hosts."""
    with pytest.raises(UsageError, match="rank 1 is on host `elsewhere`"):
        by_cluster(GRADIENTS, ["h0", "elsewhere"], racks())

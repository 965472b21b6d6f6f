"""HOCKET_CLUSTER: the default plan is made for it, and policies see it, under `distribute` and as DDP's hook."""

import sys
from pathlib import Path

import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.trace import read
from hocket.errors import UsageError
from hocket.launch.processes import ProcessSpec
from hocket.launch.run import launch
from hocket.planning.default import by_cluster
from hocket.settings import Settings
from tests.support import ranks

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
    assert plan.order == (0, 2, 1, 3)
    assert plan.buckets[0].synchroniser.sizes == (2, 2)
    assert "for this cluster" in plan.reason


@pytest.mark.timing
def test_two_lines_find_the_racks_by_themselves(emulated, tmp_path):
    """A user with nothing but the two lines would pay for the trunk once per rank."""
    told = racks()
    settings = Settings(timeout_s=30, start_timeout_s=30, trace=str(tmp_path / "trace"))
    with emulated(told) as testbed:
        specs = [
            ProcessSpec(
                argv=[sys.executable, "-c", "import cluster_scripts; cluster_scripts.plain()"],
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
    assert plan.order == (0, 2, 1, 3)
    assert plan.buckets[0].synchroniser.sizes == (2, 2)


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

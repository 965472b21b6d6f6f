"""Groups of `torch.distributed` as jobs: pipelines whose copies train as one process does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from hocket.artefacts.trace import read
from tests.support import warm
from tests.support.commands import alone

SCRIPT = Path(__file__).with_name("group_rank.py")


def ran(directory: Path, command: list[str], world: int, **more: str) -> list[dict[str, Any]]:
    """What each rank has written."""
    ended = alone(command, cwd=directory, OMP_NUM_THREADS="1", **more)
    assert ended.returncode == 0, ended.stderr
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(world)]


def run(directory: Path, what: str, world: int, *options: str, **more: str) -> list[dict[str, Any]]:
    command = warm.hocket("run", "-n", str(world), *options, str(SCRIPT), what, str(directory))
    return ran(directory, command, world, **more)


@pytest.mark.parametrize("what", ["gpipe", "1f1b", "1f1b+once"])
@pytest.mark.parametrize("world", [4, 6])
def test_copies_of_a_pipeline_train_as_one_process_does(what: str, world: int, tmp_path: Path) -> None:
    """Broken: stages would be averaged with other stages, or copies would go apart."""
    found = run(tmp_path, what, world)
    assert [(each["rank"], each["world"]) for each in found] == [(at // 2, world // 2) for at in range(world)]
    assert max(each["difference"] for each in found) < 1e-6


def test_groups_exist_under_torchrun_and_beside_the_backend(tmp_path: Path) -> None:
    """Broken: variables of torchrun would number the ranks of a group, or two jobs would meet at one place."""
    command = warm.torchrun(["--nproc-per-node", "4"], SCRIPT, "gpipe", str(tmp_path))
    found = ran(tmp_path, command, 4, BACKEND="hocket")
    assert max(each["difference"] for each in found) < 1e-6


def test_one_copy_alone(tmp_path: Path) -> None:
    """Broken: a script could not be tried with a single copy."""
    found = run(tmp_path, "1f1b", 2)
    assert [(each["rank"], each["world"]) for each in found] == [(0, 1), (0, 1)]
    assert max(each["difference"] for each in found) < 1e-6


def test_each_group_has_a_trace_and_sends_once_a_step_if_asked(tmp_path: Path) -> None:
    """Broken: groups would write over each other's records; micro-steps would send what they need not."""
    sent = {}
    for what in ("1f1b", "1f1b+once"):
        trace = tmp_path / f"trace of {what}"
        run(tmp_path, what, 4, "--trace", str(trace))
        assert sorted(each.name for each in trace.iterdir()) == ["group-0", "group-1"]
        launches = [
            (records["kind"] == 16).sum()
            for group in trace.iterdir()
            for records in (read(group).records(rank) for rank in (0, 1))
        ]
        sent[what] = set(map(int, launches))
    once, each_time = sent["1f1b+once"], sent["1f1b"]
    assert len(once) == len(each_time) == 1
    # One launch is of what ranks agree on as they start.
    assert each_time.pop() - 1 == 4 * (once.pop() - 1)


def test_what_is_no_group_is_refused(tmp_path: Path) -> None:
    """Broken: a rank would train in another job than the script means."""
    for said in run(tmp_path, "refused", 4):
        assert "the mesh has 2 dimensions, replicate, stage" in said["mesh"]
        assert "list is no group of torch.distributed" in said["no group"]
        assert "no group of torch.distributed that this rank is in" in said["not in"]
        assert "cannot be in that of ranks" in said["other group"]
        assert "cannot be in that of all ranks" in said["all ranks"]
        assert "has no gradients" in said["no gradients"]


def test_tensor_parallel_models_are_refused_by_name(tmp_path: Path) -> None:
    """Broken: NumPy would say that data is NULL."""
    for said in run(tmp_path, "spread", 2):
        assert "`0.weight` is a DTensor, in parts over (tensor)" in said["spread"]


def test_ranks_that_come_and_go_have_no_groups(tmp_path: Path) -> None:
    """Broken: a group would wait for a rank that the job has gone on without."""
    command = warm.hocket("run", "--elastic", "2:2", str(SCRIPT), "1f1b", str(tmp_path))
    ended = alone(command, cwd=tmp_path)
    assert ended.returncode != 0
    assert "HOCKET_COORDINATOR, but the ranks of a group stay as they are" in ended.stderr

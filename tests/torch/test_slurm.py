"""Elastic jobs whose ranks real SLURM starts, requeues and loses with their nodes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.processes import clean_environment
from tests.support import warm
from tests.support.slurm import Slurm, missing

pytest.importorskip("torch")

from tests.torch.test_coordinator import SECRET, Coordinated  # needs torch
from tests.torch.trainings import SCRIPT

NODES = "n0", "n1", "n2", "n3"
RANKS = 3

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


class Queued(Coordinated):
    """A job whose ranks are tasks of SLURM."""

    def __init__(self, directory: Path, slurm: Slurm) -> None:
        self.slurm = slurm
        super().__init__(directory, "--elastic", f"1:{RANKS}", founders=0)

    def submit(self, *options: str, step: str = "") -> str:
        """A batch script, each of whose tasks is a rank; `step`: options of its `srun`. Gives the job's number."""
        name = "newcomer-$SLURM_JOB_ID.$SLURM_PROCID.${SLURM_RESTART_COUNT:-0}"
        rank = shlex.join(warm.command(SCRIPT, str(self.directory)))
        script = self.directory / "rank.sh"
        script.write_text(f"#!/bin/bash\nexec srun {step} bash -c 'exec {rank} {name} \"is slow\"'\n")
        environment = clean_environment(
            HOCKET_COORDINATOR=self.address,
            HOCKET_SECRET=SECRET,
            HOCKET_START_TIMEOUT_S="60",
            PYTHONPATH=os.pathsep.join(sys.path),
        )
        out = ("--open-mode=append", f"--output={self.directory}/newcomer-%j.log")
        told = self.slurm.told("sbatch", "--parsable", *out, *options, str(script), environment=environment)
        assert told, "sbatch says nothing"
        return told.strip().partition(";")[0]

    def nodes(self, job: str) -> list[str]:
        """Those of a job, by its tasks' numbers; its script runs on the first."""
        listed = self.slurm.told("squeue", "-h", "-j", job, "-o", "%N").strip()
        return self.slurm.told("scontrol", "show", "hostnames", listed).split()

    def jobs(self) -> list[str]:
        return self.slurm.told("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%A").split()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    made = Slurm(tmp_path_factory.mktemp("slurm"), NODES)
    yield made
    made.close()


@pytest.fixture
def queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> Iterator[Queued]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Queued(tmp_path, slurm)
    yield made
    made.kill()


def test_two_tasks_of_an_array_are_requeued_and_come_back(queued: Queued) -> None:
    """Broken: a preempted task would end the job, or train a model of its own when it begins again."""
    queued.submit(f"--array=0-{RANKS - 1}", "--requeue")
    queued.until(lambda: len(queued.steps()) == RANKS)
    for job in queued.jobs()[:2]:
        queued.slurm.requeue(job)
    queued.until(lambda: len(queued.steps()) == RANKS + 2)
    queued.trains_on(RANKS)
    assert queued.end() == 0, queued.said()
    worlds = queued.check()
    assert (worlds[0], worlds[-1]) == (RANKS, RANKS)
    assert min(worlds) < RANKS


def test_a_step_goes_on_without_a_killed_task_and_without_a_lost_node(queued: Queued) -> None:
    """Broken: SLURM would end all ranks of an allocation with one of its nodes."""
    job = queued.submit(f"--nodes={RANKS}", "--no-kill", step="--no-kill --kill-on-bad-exit=0 --wait=0")
    queued.until(lambda: len(queued.steps()) == RANKS)
    node = queued.nodes(job)[1]
    queued.lose(f"newcomer-{job}.0.0")
    queued.trains_on(RANKS - 1)
    queued.slurm.lose(node)
    queued.trains_on(RANKS - 2)
    for _ in range(2):
        queued.submit("--nodes=1")
    queued.until(lambda: len(queued.steps()) == RANKS + 1)
    queued.trains_on(RANKS - 1)
    # Until SLURM has noticed that the node is gone.
    queued.until(lambda: "down" in queued.slurm.told("sinfo", "-h", "-n", node, "-o", "%T"))
    queued.trains_on(RANKS - 1)
    assert queued.end() == 0, queued.said()
    assert queued.check()[:3] == [RANKS, RANKS - 1, RANKS - 2]

"""Elastic jobs without `hocket run`, in real processes: ranks come to a coordinator of its own by one variable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from hocket.artefacts.trace import members_file
from hocket.job.live.files import live_jobs
from hocket.start.running import running
from tests.launch.processes import clean_environment, plain, told
from tests.support import warm

pytest.importorskip("torch")

from tests.torch.trainings import PATIENCE_S, SCRIPT, Launched, Local, Training, killed  # needs torch

pytestmark = pytest.mark.members

FOUNDERS = 3
SECRET = "5e" * 16
OTHER_LAUNCHERS = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "SLURM_PROCID": "7",
    "SLURM_NTASKS": "9",
    "LOCAL_RANK": "0",
}
"""Variables by which launchers number a process, which need not be right."""


class Coordinated(Launched):
    """A job behind a coordinator; whoever starts its ranks gives them its address."""

    def __init__(
        self,
        directory: Path,
        *words: str,
        founders: int = FOUNDERS,
        address: str = "127.0.0.1:0",
        **environment: str,
    ) -> None:
        super().__init__(directory, 0, FOUNDERS + 1)
        self._log = directory / "coordinators"
        self._words, self._environment = words, environment
        self.start(address)
        self.address = self.job.coordinator
        for _ in range(founders):
            self.come("")
        self.until(lambda: len(self.steps()) >= founders)

    def start(self, address: str) -> None:
        environment = clean_environment(
            TMPDIR=str(self.directory),
            PYTHONPATH=os.pathsep.join(sys.path),
            HOCKET_HEARTBEAT_TIMEOUT_S="10",
            HOCKET_SECRET=SECRET,
            **self._environment,
        )
        with self._log.open("ab") as log:
            self.launcher = subprocess.Popen(
                self.on("", plain("coordinator", "--listen", address, *self._words)),
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.until(lambda: any(each.process == self.launcher.pid for each in running()))

    @property
    def runs(self) -> bool:
        return True

    def on(self, host: str, argv: Sequence[str]) -> Sequence[str]:
        del host
        return argv

    def come(self, host: str, flaw: str = "is slow") -> subprocess.Popen[bytes]:
        """A process with nothing but the coordinator's address, and what any launcher says of it."""
        name = f"newcomer-{len(self.newcomers)}"
        environment = clean_environment(
            TMPDIR=str(self.directory),
            HOCKET_COORDINATOR=self.address,
            HOCKET_SECRET=SECRET,
            HOCKET_START_TIMEOUT_S="30",
            HOCKET_HOST=host,
            **OTHER_LAUNCHERS,
        )
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self.on(host, warm.command(SCRIPT, str(self.directory), name, flaw)),
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.newcomers.append(process)
        return process

    def lose(self, name: str) -> None:
        os.kill(self.process(name), signal.SIGKILL)

    def warns_of(self, name: str) -> None:
        """The coordinator, by which observers find the job, warns of that rank when it is stopped."""
        assert [(each.process, each.launches) for each in live_jobs()] == [(self.launcher.pid, True)]
        process = self.process(name)
        os.kill(process, signal.SIGSTOP)
        try:
            self.until(lambda: f"kill -CONT {process}" in self.output)
        finally:
            os.kill(process, signal.SIGCONT)

    def end(self) -> int:
        """The coordinator's exit code."""
        (self.directory / "stop").touch()
        for each in self.newcomers:
            each.wait(PATIENCE_S)
        return self.launcher.wait(PATIENCE_S)

    def kill(self) -> None:
        super().kill()
        self.launcher.kill()
        self.launcher.wait()


@pytest.fixture
def coordinated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Coordinated]]:
    """Makes one."""
    yield from killed(tmp_path, monkeypatch, partial(Coordinated, tmp_path))


def test_two_of_the_ranks_are_killed_and_two_others_come(
    coordinated: Callable[..., Coordinated], tmp_path: Path
) -> None:
    """Broken: under a scheduler, a preempted rank would end the job, or its successor would train a model of its own."""
    training = coordinated("--elastic", f"1:{FOUNDERS}", "--trace", str(tmp_path / "trace"))
    for left, lost in ((FOUNDERS - 1, "newcomer-0"), (FOUNDERS - 2, "newcomer-1")):
        training.lose(lost)
        training.trains_on(left)
    training.come("")
    training.come("")
    training.trains_on(FOUNDERS)
    assert training.end() == 0, training.said()
    worlds = training.check()
    assert worlds[:3] == [FOUNDERS, FOUNDERS - 1, FOUNDERS - 2]
    assert worlds[-1] == FOUNDERS
    changes = [json.loads(each)["what"] for each in members_file(tmp_path / "trace").read_text().splitlines()]
    assert changes[:2] == ["lost", "lost"]
    assert (set(changes[2:-1]), changes[-1]) == ({"joined"}, "ended")


def test_a_rank_leaves_and_others_join_as_under_hocket_run(coordinated: Callable[..., Coordinated]) -> None:
    """Broken: an operator could not take a machine out of such a job, put one in by hand, or see there whom the others wait for,
    before or after they have met anew."""
    training = coordinated("--elastic", f"1:{FOUNDERS + 1}", "-n", str(FOUNDERS), HOCKET_LATE_S="0.5")
    training.trains_on(FOUNDERS)
    training.warns_of("newcomer-2")
    code, out, err = told(training.directory, "leave", "1")
    assert (code, "has left, and 2 of 3 ranks go on" in out) == (0, True), (out, err)
    training.trains_on(FOUNDERS - 1)
    Training.come(training, "c", "is slow")  # as `hocket join` does
    training.trains_on(FOUNDERS)
    training.warns_of("newcomer-3")
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS - 1, FOUNDERS]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_coordinator_that_ends_and_is_started_again_goes_on_from_its_journal(
    number: int, coordinated: Callable[..., Coordinated], tmp_path: Path
) -> None:
    """Broken: a node that is drained would end the job of its coordinator."""
    words = ("--elastic", f"1:{FOUNDERS}", "--journal", str(tmp_path / "journal"))
    training = coordinated(*words)
    training.launcher.send_signal(number)
    assert training.launcher.wait(PATIENCE_S) in (-number, 128 + number)
    training.trains_on(FOUNDERS, further=10)
    training.lose("newcomer-2")
    training.start(training.address)
    training.trains_on(FOUNDERS - 1)
    training.come("")
    training.trains_on(FOUNDERS)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS - 1, FOUNDERS]
    assert not (tmp_path / "journal").exists()


def test_ctrl_c_ends_the_job_for_good(coordinated: Callable[..., Coordinated], tmp_path: Path) -> None:
    """Broken: a job with a journal could not be ended at all, or ranks would wait for a coordinator that nobody starts."""
    training = coordinated("--elastic", f"1:{FOUNDERS}", "--journal", str(tmp_path / "journal"))
    training.launcher.send_signal(signal.SIGINT)
    assert training.launcher.wait(PATIENCE_S) == 128 + signal.SIGINT
    assert [each.wait(PATIENCE_S) for each in training.newcomers] == [1] * FOUNDERS
    assert not (tmp_path / "journal").exists()


def test_one_variable_leads_to_a_job_of_hocket_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a pod could not help a job that somebody has started by hand."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Local(tmp_path, "ab", ("is slow",) * 2, members_min=1, members_max=3) as training:
        where = {"HOCKET_COORDINATOR": training.job.coordinator, "HOCKET_SECRET": training.job.secret}
        with (tmp_path / "newcomer-0.log").open("wb") as log:
            command = warm.command(SCRIPT, str(tmp_path), "newcomer-0", "is slow")
            environment = clean_environment(HOCKET_HOST="c", **where)
            newcomer = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        training.newcomers.append(newcomer)
        training.trains_on(3)
        assert training.end().code == 0, training.said()
        assert training.check() == [2, 3]


def test_a_rank_that_a_notice_makes_leave_has_the_exit_code_of_a_signal(
    coordinated: Callable[..., Coordinated],
) -> None:
    """Broken: a pod that is preempted would count as one that has done its work, and no other one would come in its place."""
    training = coordinated("--elastic", f"1:{FOUNDERS}")
    training.leaves("newcomer-1")
    assert training.newcomers[1].wait(PATIENCE_S) == 128 + signal.SIGTERM
    training.trains_on(FOUNDERS - 1)
    training.come("")
    training.trains_on(FOUNDERS)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS - 1, FOUNDERS]
    assert sorted(each.returncode for each in training.newcomers) == [0] * FOUNDERS + [143]


def test_a_coordinator_without_a_journal_ends_the_job_with_itself(
    coordinated: Callable[..., Coordinated],
) -> None:
    """Broken: ranks would train on without anybody who could decide, or the exit code would say that all is well."""
    training = coordinated("--elastic", f"1:{FOUNDERS}")
    training.launcher.terminate()
    assert training.launcher.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert [each.wait(PATIENCE_S) for each in training.newcomers] == [1] * FOUNDERS
    assert training.said().count("the job ends: its coordinator was told to end") == FOUNDERS


def test_when_all_ranks_are_gone_the_coordinator_says_so_and_ends(
    coordinated: Callable[..., Coordinated],
) -> None:
    """Broken: a coordinator would wait for ever for a job whose state is lost."""
    training = coordinated("--elastic", f"1:{FOUNDERS}")
    for each in training.newcomers:
        each.kill()
    assert training.launcher.wait(PATIENCE_S) == 1
    assert "hocket: the job ends: no rank is left that has the model's state" in training.output


def test_a_rank_that_comes_to_a_full_job_waits_until_one_is_lost(
    coordinated: Callable[..., Coordinated],
) -> None:
    """Broken: a spare pod would be refused, or train beside the others."""
    training = coordinated("--elastic", f"1:{FOUNDERS}")
    training.come("spare")
    time.sleep(1.0)
    training.trains_on(FOUNDERS)
    training.lose("newcomer-0")
    training.until(lambda: "newcomer-3" in training.steps())
    training.trains_on(FOUNDERS)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS - 1, FOUNDERS]


def test_a_founder_that_ends_before_training_begins_costs_the_job_nothing(
    coordinated: Callable[..., Coordinated],
) -> None:
    """Broken: one pod that dies as it starts would end a job for which many machines were waited for."""
    training = coordinated("--elastic", f"1:{FOUNDERS}", "--wait", "60", founders=0)
    flaws = ("dies when all have met", "", "")
    for flaw in flaws:
        training.come("", flaw)
    assert training.newcomers[0].wait(PATIENCE_S) == -signal.SIGKILL
    assert [each.wait(PATIENCE_S) for each in training.newcomers[1:]] == [1, 1]
    assert "ended before training had begun" in training.said()
    for _ in flaws:
        training.come("")
    training.until(lambda: len(training.steps()) == FOUNDERS)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS]

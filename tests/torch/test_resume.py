"""Elastic jobs whose launcher dies, in real processes: training goes on, and another launcher goes on from the journal."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from hocket.errors import RendezvousError, UsageError
from hocket.start import resume as resuming
from hocket.start.resume import resume
from hocket.start.running import running
from tests.launch.processes import clean_environment
from tests.support import drawn, warm

pytest.importorskip("torch")

from tests.torch.trainings import PATIENCE_S, SCRIPT, Launched, killed  # needs torch

FOUNDERS = 3
CASES = drawn.cases(2)


class Abandoned(Launched):
    """A job behind a launcher of its own, which can be killed."""

    def __init__(self, directory: Path, *, coordinator_timeout_s: float = 60.0, respawn: int = 0) -> None:
        self.journal = directory / "journal"
        self._log = directory / "launchers"
        self._temporary = str(directory)
        training = warm.command(SCRIPT, str(directory), "founder", "is slow")
        self.start(
            *("-n", str(FOUNDERS), "--elastic"),
            f"1:{FOUNDERS + 1},journal={self.journal},alone={coordinator_timeout_s},respawn={respawn}",
            *training,
        )
        super().__init__(directory, FOUNDERS, FOUNDERS + 1)

    def start(self, *arguments: str) -> None:
        with self._log.open("ab") as log:
            self.launcher = subprocess.Popen(
                [sys.executable, "-c", "from hocket.cli.main import main; main()", "run", *arguments],
                env=clean_environment(
                    TMPDIR=self._temporary,
                    PYTHONPATH=os.pathsep.join(sys.path),
                    HOCKET_START_TIMEOUT_S="30",
                    HOCKET_HEARTBEAT_TIMEOUT_S="10",
                ),
                stdout=log,
                stderr=log,
            )

    def resume(self) -> None:
        self.start("--resume", str(self.journal))
        self.until(lambda: any(each.process == self.launcher.pid for each in running()))

    def abandon(self) -> None:
        self.launcher.kill()
        self.launcher.wait()

    @property
    def runs(self) -> bool:
        return True

    @property
    def output(self) -> str:
        """With what ranks said while nobody heard them."""
        return "\n--\n".join(
            file.read_text(errors="replace") for file in (self._log, *self.directory.glob("journal.*.log"))
        )

    @property
    def processes(self) -> list[int]:
        return [own[0]["process"] for own in self.steps().values()]

    def on(self, host: str, argv: Sequence[str]) -> Sequence[str]:
        del host
        return argv

    def end(self) -> int:
        (self.directory / "stop").touch()
        code = self.launcher.wait(PATIENCE_S)
        for each in self.newcomers:
            each.wait(PATIENCE_S)
        self.until(self.nobody_is_left)
        return code

    def nobody_is_left(self) -> bool:
        return not any(Path(f"/proc/{each}").exists() for each in self.processes)

    def kill(self) -> None:
        super().kill()
        self.abandon()
        for each in self.processes:
            if Path(f"/proc/{each}").exists():
                os.kill(each, signal.SIGKILL)


@pytest.fixture
def abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Abandoned]]:
    """Makes one."""
    yield from killed(tmp_path, monkeypatch, partial(Abandoned, tmp_path))


def test_training_goes_on_without_its_launcher_and_members_change_again_with_the_next(
    abandoned: Callable[..., Abandoned],
) -> None:
    """Broken: whoever closes a terminal ends the job, or is left with one that nobody can join or leave any more."""
    training = abandoned()
    training.abandon()
    (training.directory / "evaluate").touch()
    training.trains_on(FOUNDERS, further=20)
    assert "nobody checks that all ranks have the same data set `held out`" in training.said()
    training.resume()
    training.until(lambda: training.said().count("is back") == FOUNDERS)
    training.come("c", "is slow")
    training.trains_on(FOUNDERS + 1)
    training.leaves("founder-0")
    training.trains_on(FOUNDERS)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS + 1, FOUNDERS]
    assert not training.journal.exists()


def test_a_rank_that_is_lost_meanwhile_is_left_behind_by_the_next_launcher(
    abandoned: Callable[..., Abandoned],
) -> None:
    """Broken: the others would wait for ever, or each would go on with whom it thinks is left."""
    training = abandoned()
    training.abandon()
    os.kill(training.steps()["founder-1"][0]["process"], signal.SIGKILL)
    time.sleep(0.5)
    with training.journal.open("ab") as torn:
        torn.write(b"\x40\0\0\0 half a record")
    training.resume()
    training.trains_on(FOUNDERS - 1)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS - 1]


def test_a_newcomer_that_is_not_so_far_yet_gets_from_the_others_by_the_next_launcher_what_they_gave_it(
    abandoned: Callable[..., Abandoned],
) -> None:
    """Broken: a launcher that dies while a newcomer loads its first batch would end the job, or a newcomer would begin with a
    scheduler of its own."""
    training = abandoned()
    training.come("c", "waits for its first batch")
    training.until((training.directory / "waiting").exists)
    training.abandon()
    (training.directory / "loaded").touch()
    time.sleep(0.5)
    training.resume()
    training.trains_on(FOUNDERS + 1)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS + 1]


def test_the_next_launcher_replaces_nobody_and_knows_whom_the_first_one_did(
    abandoned: Callable[..., Abandoned],
) -> None:
    """Broken: whoever takes the place of a lost rank would end with its launcher, or another process would get its number."""
    training = abandoned(respawn=2)
    os.kill(training.process("founder-1"), signal.SIGKILL)
    training.until(lambda: "founder-3" in training.steps())
    training.abandon()
    training.trains_on(FOUNDERS, further=20)
    training.resume()
    training.until(lambda: training.said().count("is back") == FOUNDERS)
    assert "lost ranks are not replaced any more" in training.said()
    os.kill(training.process("founder-0"), signal.SIGKILL)
    training.trains_on(FOUNDERS - 1)
    training.come("c", "is slow")
    training.trains_on(FOUNDERS)
    assert training.end() == 0, training.said()
    assert training.check() == [FOUNDERS, FOUNDERS - 1, FOUNDERS, FOUNDERS - 1, FOUNDERS]
    assert "rank 5 on c" in training.said()


@pytest.mark.parametrize("seed", range(CASES))
def test_launchers_die_while_ranks_come_and_go(seed: int, abandoned: Callable[..., Abandoned]) -> None:
    """Broken: a launcher that dies in the middle of a change would leave ranks that wait for ever, or two jobs."""
    choice = random.Random(seed)  # noqa: S311  # no secret
    training = abandoned()
    living = dict(enumerate(training.processes))
    for turn in range(3):
        if turn % 2:
            os.kill(living.pop(choice.choice(list(living))), signal.SIGKILL)
        else:
            name = len(living) + FOUNDERS + turn
            living[name] = training.come(choice.choice("abc"), "is slow").pid
        time.sleep(choice.uniform(0, 1.5))
        training.abandon()
        time.sleep(choice.uniform(0, 0.5))
        training.resume()
        training.trains_on(len(living))
    assert training.end() == 0, training.said()
    training.check()


def test_ranks_end_when_no_launcher_comes(abandoned: Callable[..., Abandoned]) -> None:
    """Broken: a job whose launcher was killed would use its machines until somebody finds it."""
    training = abandoned(coordinator_timeout_s=1.0)
    training.abandon()
    training.until(training.nobody_is_left)
    assert "no other one came within 1 s" in training.said()


def test_an_old_copy_of_a_journal_ends_the_job_and_makes_no_second_one(
    abandoned: Callable[..., Abandoned],
) -> None:
    """Broken: decisions would be made on who was there long ago."""
    training = abandoned()
    old = training.directory / "copy"
    shutil.copy(training.journal, old)
    training.come("c", "is slow")
    training.trains_on(FOUNDERS + 1)
    training.abandon()
    shutil.copy(old, training.journal)
    training.start("--resume", str(training.journal))
    assert training.launcher.wait(PATIENCE_S) == 1
    training.until(training.nobody_is_left)
    assert "it is an old copy" in training.said()


def test_journals_of_no_job_that_could_go_on_are_refused(
    abandoned: Callable[..., Abandoned], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: two launchers would decide for one job, one would begin with whatever a file holds, or `hocket run --resume` would
    wait for ever for ranks that are dead."""
    monkeypatch.setattr(resuming, "COME_BACK_S", 1.0)
    training = abandoned()
    with pytest.raises(UsageError, match="still runs"):
        resume(training.journal)
    training.abandon()
    whole = training.journal.read_bytes()
    other = training.directory / "other"
    for damaged, why in (
        (b"no journal", "is no journal of an elastic job"),
        (whole.replace(b"members_min", b"members_mean"), "is no journal of an elastic job"),
        (whole[:-1] + bytes([whole[-1] ^ 1]) + whole.partition(b"\n")[2], "damaged at byte 0"),
    ):
        other.write_bytes(damaged)
        with pytest.raises(UsageError, match=why):
            resume(other)
    for each in training.processes:
        os.kill(each, signal.SIGKILL)
    with pytest.raises(RendezvousError, match="no rank of"):
        resume(training.journal)
    assert training.journal.exists()

"""Ranks join elastic jobs that train, in real processes."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.settings import Settings
from hocket.start.processes import SIGNALLED
from tests.launch.processes import clean_environment
from tests.support import drawn, warm

pytest.importorskip("torch")

from tests.torch import join_scripts as scripts
from tests.torch.trainings import PATIENCE_S, SCRIPT, Local, killed  # needs torch

pytestmark = pytest.mark.members

FEW, EVENTS = 2, 8
SILENCE_S = 3.0
WARM = 3
"""Meetings after which all that is made once has been made."""
KEPT_BYTES_MAX = 1 << 20
"""Of a meeting. Engines of these ranks have mailboxes of several megabytes."""
CASES = drawn.cases(FEW)

FLAWS = (
    "dies while all meet",
    "another model",
    "dies while it prepares",
    "dies when it is welcome",
    "dies when all have met",
    "dies in its first step",
)


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Local]]:
    """Makes them."""

    def make(
        hosts: str,
        *founders: str,
        members_min: int = 1,
        members_max: int = 4,
        settings: Settings | None = None,
    ) -> Local:
        return Local(
            tmp_path, hosts, founders, members_min=members_min, members_max=members_max, settings=settings
        )

    yield from killed(tmp_path, monkeypatch, make)


def test_ranks_join_one_after_the_other_and_the_founders_leave(
    trainings: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a job could only shrink; those that join would train on other parameters, learning rates or samples than the
    others; or a job would end with the machines on which it began."""
    training = trainings("ab", members_max=3)
    first = training.come("a")
    training.trains_on(3)
    second = training.come("c")
    training.until(lambda: "waits: the job has 3 ranks, as many as it may" in caplog.text)
    for rank in range(2):
        training.leaves(f"founder-{rank}")
    training.trains_on(2, further=10)
    outcome = training.end()
    assert (outcome.code, outcome.failures) == (0, ()), training.said()
    assert [first.returncode, second.returncode] == [0, 0], training.said()
    assert training.check()[:2] == [2, 3]
    told = [each for own in training.steps().values() for note in own for each in note["told"]]
    assert ["rank 2 on a joined", 2, 3] in [[why, *worlds] for why, _, *worlds, _ in told]
    starts = [each for each in told if each[0] == "the job starts"]
    assert {tuple(each[1:4]) for each in starts} == {(0, 0, 2)}, "a newcomer is told that the job starts"
    assert all(why for why, *_ in told), "something is told that is no change"


@pytest.mark.parametrize("flaw", FLAWS[: FEW if CASES == FEW else None])
def test_a_process_that_fails_to_join_costs_the_others_nothing(
    flaw: str, trainings: Callable[..., Local]
) -> None:
    """Broken: whoever joins with a mistake, or dies of it, ends a job that trains, or stops it."""
    training = trainings("ab")
    wrong = training.come("c", flaw)
    assert wrong.wait(PATIENCE_S) != 0, training.said()
    training.trains_on(2)
    right = training.come("c")
    training.trains_on(3)
    outcome = training.end()
    assert (outcome.code, right.returncode) == (0, 0), training.said()
    told = [each for own in training.steps().values() for note in own for each in note["told"]]
    assert {why for why, *_ in told} == {"the job starts", told[-1][0]}, "a join that failed changed nothing"
    if flaw == "another model":
        assert "the models of rank 0 and rank 2 differ" in training.said()
    training.check()


@pytest.mark.parametrize(
    ("flaw", "why"),
    [
        # The coordinator may notice its silence before the others give up.
        ("is stopped while all meet", ""),
        ("hangs while all connect", "2 of the others could not reach it when the job's ranks met"),
    ],
)
@pytest.mark.parametrize("host", ["a", "c"])
def test_a_process_that_hangs_while_all_connect_is_left_out(
    flaw: str, why: str, host: str, trainings: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: all ranks would wait for whoever joins and hangs, for as long as at the start of a job, and then end."""
    # Whoever waits for so long waits for longer than this test does.
    training = trainings(
        "ab", settings=Settings(timeout_s=600, start_timeout_s=600, heartbeat_timeout_s=SILENCE_S)
    )
    training.come(host, flaw).poll()
    training.until(lambda: f"was lost before all had met it: {why}" in caplog.text)
    training.trains_on(2, further=10)
    right = training.come(host)
    training.trains_on(3)
    training.newcomers[0].kill()
    assert (training.end().code, right.returncode) == (0, 0), training.said()
    assert training.check() == [2, 3]


def test_ranks_join_a_job_with_a_policy(trainings: Callable[..., Local]) -> None:
    """Broken: newcomers would go on from another state of the policy, or other agreed values, than the others, or without it."""
    training = trainings("ab", "a policy", "a policy", members_max=3)

    def agree_on(workers: int) -> None:
        training.until(
            lambda: any(own[-1]["agreed"].get("workers") == workers for own in training.steps().values())
        )

    agree_on(2)
    without = training.come("c")
    training.until(lambda: without.poll() is not None)
    assert "comes with no policy, and the job trains with policy Sums" in training.said()
    newcomer = training.come("c", "a policy")
    training.trains_on(3)
    agree_on(3)
    os.kill(training.process("founder-0"), signal.SIGKILL)
    training.trains_on(2)
    outcome = training.end()
    assert (outcome.code, newcomer.returncode) == (0, 0), training.said()
    assert training.check() == [2, 3, 2]
    for own in training.of_the_chain():
        for what in ("common", "agreed"):
            assert all(each[what] == own[0][what] for each in own), (what, own)


def test_a_step_that_stands_is_taken_before_the_epoch_of_policies_that_it_begins(
    trainings: Callable[..., Local],
) -> None:
    """Broken: a rank that hears of a loss before it has done such a step would step with new memory, zeros, and replicas differ."""
    training = trainings("abc", scripts.DYING, scripts.LATE, scripts.POLICY)
    training.trains_on(2)
    outcome = training.end()
    assert outcome.code == 0, training.said()
    assert training.check() == [3, 2]


@pytest.mark.parametrize(
    "flaw",
    [
        "dies while it prepares",
        "dies while all meet",
        "dies before its first step with newcomers",
        "dies when all have met",
    ][: FEW if CASES == FEW else None],
)
def test_a_rank_that_dies_while_all_meet_costs_the_others_nothing(
    flaw: str, trainings: Callable[..., Local]
) -> None:
    """Broken: a job would not survive a loss in the moment in which others join."""
    training = trainings("abc", "", flaw, "")
    newcomer = training.come("b")
    training.until(lambda: len(training.steps().get("newcomer-0", ())) > FEW)
    training.trains_on(3)
    outcome = training.end()
    assert (outcome.code, newcomer.returncode) == (0, 0), training.said()
    training.check()


@pytest.mark.parametrize(
    ("member", "newcomer"),
    [
        ("makes no programs while all meet", "makes no programs while all meet"),
        ("trains by other terms when all meet", "trains by other terms when all meet"),
        ("", "has no memory while it prepares"),
    ],
)
def test_all_go_on_with_what_all_have_prepared(
    member: str, newcomer: str, trainings: Callable[..., Local]
) -> None:
    """Broken: members would stand still while programs are made; or they would train by those of terms that hold no more, or with
    programs that others do not have."""
    patient = Settings(heartbeat_timeout_s=PATIENCE_S)
    training = trainings("aa", member, member, settings=patient)
    joined = training.come("a", newcomer)
    training.trains_on(3)
    assert (training.end().code, joined.returncode) == (0, 0), training.said()
    assert training.check() == [2, 3]


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_sums_go_to_a_newcomer_before_the_step(hosts: str, trainings: Callable[..., Local]) -> None:
    """Broken: all ranks would stand still while the last step's gradients travel once more, to the newcomer."""
    training = trainings(hosts)
    joined = training.come("c", "gets gradients only after a step")
    training.trains_on(3)
    assert (training.end().code, joined.returncode) == (0, 0), training.said()
    assert training.check() == [2, 3]


def test_a_job_ends_with_the_last_rank_that_has_its_state(trainings: Callable[..., Local]) -> None:
    """Broken: those who came for the state would end with a mistake of ours, or wait for ever."""
    training = trainings("a", "dies while all meet")
    newcomer = training.come("c")
    assert newcomer.wait(PATIENCE_S) != 0
    outcome = training.end()
    assert outcome.ended is not None
    assert outcome.ended.why == "nobody who holds the model's state is left; lost: members 0"
    assert "the job ends: nobody who holds the model's state is left" in training.said()


def test_a_rank_that_has_met_many_others_has_kept_nothing_of_them(trainings: Callable[..., Local]) -> None:
    """Broken: a job would run out of descriptors, threads or memory after some days on machines that come and go."""
    training = trainings("ab")
    settled, opened = [], []
    for turn in range(WARM + CASES):
        training.come("ab"[turn % 2])
        training.trains_on(3)
        name = f"newcomer-{turn}"
        if turn % 3:
            os.kill(training.process(name), signal.SIGKILL)
        else:
            training.leaves(name)
        training.trains_on(2)
        training.until(lambda: all(founders_use(training)))
        settled.append(founders_use(training))
        opened.append(founders_open(training))

    def as_before() -> bool:
        both = zip(settled[WARM - 1], founders_use(training), strict=True)
        return all(
            after[name] <= before[name] for before, after in both for name in ("descriptors", "threads")
        )

    try:
        # Where other work keeps ranks from it, the thread beside training is still in its last meeting with those who left.
        training.until(as_before)
    except AssertionError:
        now = zip(opened[WARM - 1], founders_open(training), strict=True)
        kept = [(after - before, before - after) for before, after in now]
        pytest.fail(f"kept, and gone: {kept}\n{founders_use(training)}, after {settled}\n{training.said()}")
    used = founders_use(training)
    assert training.end().code == 0, training.said()
    for before, after in zip(settled[WARM - 1], used, strict=True):
        assert after["resident bytes"] - before["resident bytes"] < CASES * KEPT_BYTES_MAX, settled


def founders_use(training: Local) -> list[dict[str, int]]:
    return [least_used(training.steps()[f"founder-{rank}"]) for rank in range(2)]


def founders_open(training: Local) -> list[Counter[str]]:
    return [Counter(training.steps()[f"founder-{rank}"][-1]["open"]) for rank in range(2)]


def least_used(notes: list[dict[str, Any]]) -> dict[str, int]:
    """Since the last change, and since the thread beside training has a connection again, which is one descriptor; empty before.

    While the autopilot asks its questions, it holds more for a moment.
    """
    since = itertools.takewhile(lambda note: note["world"] == notes[-1]["world"], reversed(notes))
    of_each = [note["uses"] for note in since if note["meets"]]
    return {name: min(uses[name] for uses in of_each) for name in of_each[0]} if of_each else {}


def test_a_launcher_that_is_told_to_end_ends_all_its_ranks(tmp_path: Path) -> None:
    """Broken: ranks would take the launcher's SIGTERM for a notice that each of them alone is to leave, and all stay."""
    patient = (
        "import sys; sys.executable = sys.argv.pop(1); from hocket.start import run; run.INTERRUPT_S = 1e6; "
        "from hocket.cli.main import main; main()"
    )
    ranks = [str(SCRIPT), str(tmp_path), "founder", ""]
    with (tmp_path / "log").open("wb") as log:
        launcher = subprocess.Popen(
            [sys.executable, "-c", patient, warm.interpreter(), "run", "--elastic", "1:2", *ranks],
            env=clean_environment(TMPDIR=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path)),
            stdout=log,
            stderr=log,
        )
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while len(list(tmp_path.glob("*.steps"))) < FEW:
            assert time.monotonic() < deadline_s, (tmp_path / "log").read_text()
            time.sleep(0.02)
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(PATIENCE_S) == SIGNALLED + signal.SIGTERM, (tmp_path / "log").read_text()
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize("seed", range(CASES))
def test_ranks_come_and_go(seed: int, trainings: Callable[..., Local]) -> None:
    """Broken: a sample or a step would be lost, or a job would stop, when machines come and go at any time."""
    choice = random.Random(seed)  # noqa: S311  # no secret
    training = trainings("ab")
    living = {f"founder-{rank}": training.process(f"founder-{rank}") for rank in range(2)}
    for _ in range(EVENTS):
        trained = [name for name in living if name in training.steps()]
        match choice.choice(["comes", "dies", "leaves"]):
            case "comes" if len(living) < training.members_max:
                name = f"newcomer-{len(training.newcomers)}"
                living[name] = training.come(choice.choice("abc")).pid
            case "dies" if len(trained) > 1:
                os.kill(living.pop(choice.choice(list(living))), signal.SIGKILL)
            case "leaves" if len(trained) > 1:
                name = choice.choice(trained)
                del living[name]
                training.leaves(name)
        if choice.random() < 0.5:  # a coin
            training.trains_on(len(living))
        else:
            time.sleep(choice.uniform(0, 0.3))
    training.trains_on(len(living))
    outcome = training.end()
    assert outcome.code == 0, training.said()
    training.check()

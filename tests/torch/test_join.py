"""Ranks join elastic jobs that train, in real processes."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hocket.launch.processes import ProcessSpec
from hocket.launch.run import Outcome, launch
from hocket.launch.running import RunningJob, chosen
from hocket.settings import Settings
from tests.launch.processes import clean_environment
from tests.support import warm

torch = pytest.importorskip("torch")

from tests.torch import join_scripts as scripts  # noqa: E402  # needs torch

SCRIPT = Path(scripts.__file__)
PATIENCE_S = 60
FEW, EVENTS = 2, 8
WARM = 3
"""Meetings after which all that is made once has been made."""
KEPT_BYTES_MAX = 1 << 20
"""Of a meeting. Engines of these ranks have mailboxes of several megabytes."""
CASES = int(os.environ.get("HOCKET_FUZZ_CASES", str(FEW)))
CHURN_S = float(os.environ.get("HOCKET_CHURN_S", "8"))
CHURN_PAUSES_S = 0.5, 2.0
GROWN_BYTES_MAX = 16 << 20
"""Of a rank's memory during all of the churn."""

FLAWS = (
    "dies while all meet",
    "another model",
    "dies when it is welcome",
    "dies when all have met",
    "dies in its first step",
)


class Training:
    """A job in a thread of this process, and processes that join it."""

    def __init__(
        self, directory: Path, hosts: str, founders: tuple[str, ...], *, members_min: int, members_max: int
    ) -> None:
        self.directory = directory
        self.members_max = members_max
        self.output = io.BytesIO()
        self.newcomers: list[subprocess.Popen[bytes]] = []
        self._outcome: Outcome | None = None

        def run() -> None:
            flaws = founders or ("",) * len(hosts)
            self._outcome = launch(
                [
                    ProcessSpec(argv=warm.command(SCRIPT, str(directory), f"founder-{rank}", flaw), host=host)
                    for rank, (host, flaw) in enumerate(zip(hosts, flaws, strict=True))
                ],
                settings=Settings(timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=10),
                members_min=members_min,
                members_max=members_max,
                out=self.output,
                err=self.output,
            )

        self._thread = threading.Thread(target=run)
        self._thread.start()
        self.until(lambda: len(self.steps()) >= len(hosts))

    @property
    def job(self) -> RunningJob:
        """As its launcher has announced it."""
        return chosen(os.getpid())

    def come(self, host: str, flaw: str = "") -> subprocess.Popen[bytes]:
        """A process that wants to join."""
        name = f"newcomer-{len(self.newcomers)}"
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                warm.command(SCRIPT, str(self.directory), name, flaw),
                env=self.job.for_newcomer(clean_environment(HOCKET_HOST=host)),
                stdout=log,
                stderr=log,
            )
        self.newcomers.append(process)
        return process

    def leaves(self, name: str) -> None:
        """That process, with notice."""
        process: int = self.steps()[name][0]["process"]
        os.kill(process, signal.SIGTERM)
        self.until(lambda: not Path(f"/proc/{process}").exists())

    def notes(self, of: str) -> dict[str, list[dict[str, Any]]]:
        """By process: what it has noted with that key."""
        found = {}
        for file in self.directory.glob("*.steps"):
            whole, _, _ = file.read_text().rpartition("\n")
            own = [note for note in map(json.loads, whole.splitlines()) if of in note]
            if own:
                found[file.stem] = own
        return found

    def steps(self) -> dict[str, list[dict[str, Any]]]:
        """By process: what it has noted of each step."""
        return self.notes("step")

    def drawn_by_the_dead(self) -> dict[int, dict[int, list[int]]]:
        """By step and rank: the samples of those that were killed before they could note the step."""
        steps = self.steps()
        found: dict[int, dict[int, list[int]]] = defaultdict(dict)
        for process, notes in self.notes("draws for").items():
            last = notes[-1]
            if process not in steps or steps[process][-1]["step"] < last["draws for"]:
                found[last["draws for"]][last["rank"]] = last["drawn"]
        return found

    def trains_on(self, world: int, *, further: int = 3) -> None:
        """Until so many ranks have made some steps."""
        since = max(each["step"] for own in self.steps().values() for each in own)
        self.until(
            lambda: (
                sum(
                    sum(each["world"] == world and each["step"] > since for each in own) >= further
                    for own in self.steps().values()
                )
                >= world
            )
        )

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for that."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert self._thread.is_alive(), self.said()
            assert time.monotonic() < deadline_s, self.said()
            time.sleep(0.02)

    def end(self) -> Outcome:
        """All stop after the same step."""
        (self.directory / "stop").touch()
        self._thread.join(PATIENCE_S)
        for each in self.newcomers:
            each.wait(PATIENCE_S)
        assert self._outcome is not None, self.said()
        return self._outcome

    def said(self) -> str:
        """By all processes."""
        logs = [file.read_text() for file in sorted(self.directory.glob("newcomer-*.log"))]
        return "\n--\n".join([self.output.getvalue().decode(), *logs])

    def kill(self) -> None:
        """Whatever is left after a failure."""
        (self.directory / "stop").touch()
        for each in self.newcomers:
            each.kill()
            each.wait()
        self._thread.join(PATIENCE_S)

    def check(self) -> list[list[int]]:
        """All ranks have the bits of all others after each step, each sample comes once, and one process gets the same parameters.

        Gives the worlds of the steps, where they change.
        """
        by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for each in itertools.chain.from_iterable(self.steps().values()):
            by_step[each["step"]].append(each)
        assert sorted(by_step) == list(range(1, len(by_step) + 1))
        unfinished = self.drawn_by_the_dead()
        drawn: list[list[list[int]]] = []
        epochs: dict[int, Counter[int]] = defaultdict(Counter)
        for step, own in sorted(by_step.items()):
            for name in ("world", "digest before", "epoch", "rate"):
                assert len({each[name] for each in own}) == 1, (step, name, own)
            by_rank = unfinished[step] | {each["rank"]: each["drawn"] for each in own}
            drawn.append([by_rank[rank] for rank in range(own[0]["world"])])
            epochs[own[0]["epoch"]].update(itertools.chain.from_iterable(drawn[-1]))
        last = max(epochs)
        for epoch, counts in epochs.items():
            whole = set(counts) if epoch == last else set(range(scripts.SAMPLES))
            assert set(counts) == whole
            # At the end of a pass, the last samples are shared by all.
            assert sum(counts.values()) - len(counts) < max(map(len, drawn))
        expected = scripts.replayed(drawn)
        found = list(self.directory.glob("*.pt"))
        assert len(found) == len(drawn[-1])
        for file in found:
            for own_value, wanted in zip(torch.load(file), expected, strict=True):
                torch.testing.assert_close(own_value, wanted, rtol=1e-5, atol=1e-5)
        worlds = [len(everyone) for everyone in drawn]
        return [world for world, _ in itertools.groupby(worlds)]


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Training]]:
    """Makes them, where nobody else's jobs are found."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made: list[Training] = []

    def make(hosts: str, *founders: str, members_min: int = 1, members_max: int = 4) -> Training:
        made.append(Training(tmp_path, hosts, founders, members_min=members_min, members_max=members_max))
        return made[-1]

    yield make
    for each in made:
        each.kill()


def test_ranks_join_one_after_the_other_and_the_founders_leave(
    trainings: Callable[..., Training], caplog: pytest.LogCaptureFixture
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


@pytest.mark.parametrize("flaw", FLAWS[: FEW if CASES == FEW else None])
def test_a_process_that_fails_to_join_costs_the_others_nothing(
    flaw: str, trainings: Callable[..., Training]
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
    if flaw == "another model":
        assert "the models of rank 0 and rank 2 differ" in training.said()
    training.check()


@pytest.mark.parametrize(
    "flaw", ["dies while all meet", "dies when all have met"][: FEW if CASES == FEW else None]
)
def test_a_rank_that_dies_while_all_meet_costs_the_others_nothing(
    flaw: str, trainings: Callable[..., Training]
) -> None:
    """Broken: a job would not survive a loss in the moment in which others join."""
    training = trainings("abc", "", flaw, "")
    newcomer = training.come("b")
    training.until(lambda: len(training.steps().get("newcomer-0", ())) > FEW)
    training.trains_on(3)
    outcome = training.end()
    assert (outcome.code, newcomer.returncode) == (0, 0), training.said()
    training.check()


def test_a_rank_that_has_met_many_others_has_kept_nothing_of_them(trainings: Callable[..., Training]) -> None:
    """Broken: a job would run out of descriptors, threads or memory after some days on machines that come and go."""
    training = trainings("ab")
    settled = []
    for turn in range(WARM + CASES):
        training.come("ab"[turn % 2])
        training.trains_on(3)
        name = f"newcomer-{turn}"
        if turn % 3:
            os.kill(training.steps()[name][0]["process"], signal.SIGKILL)
        else:
            training.leaves(name)
        training.trains_on(2, further=10)
        settled.append([training.steps()[f"founder-{rank}"][-1]["uses"] for rank in range(2)])
    assert training.end().code == 0, training.said()
    for before, after in zip(settled[WARM - 1], settled[-1], strict=True):
        assert after["descriptors"] <= before["descriptors"], settled
        assert after["threads"] <= before["threads"], settled
        assert after["resident bytes"] - before["resident bytes"] < CASES * KEPT_BYTES_MAX, settled


@pytest.mark.parametrize("seed", range(CASES))
def test_ranks_come_and_go(seed: int, trainings: Callable[..., Training]) -> None:
    """Broken: a sample or a step would be lost, or a job would stop, when machines come and go at any time."""
    choice = random.Random(seed)  # noqa: S311  # no secret
    training = trainings("ab")
    living = {f"founder-{rank}": training.steps()[f"founder-{rank}"][0]["process"] for rank in range(2)}
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


def test_churn(trainings: Callable[..., Training], capsys: pytest.CaptureFixture[str]) -> None:
    """Broken: a job on machines that come and go all the time would lose a step, or grow until it ends.

    `make churn`: for an hour.
    """
    choice = random.Random(0)  # noqa: S311  # no secret
    training = trainings("ab", "is slow", "is slow")
    witness, other = (training.steps()[f"founder-{rank}"][0]["process"] for rank in range(2))
    living = [other]
    deadline_s = time.monotonic() + CHURN_S
    kills = 0
    while time.monotonic() < deadline_s:
        time.sleep(choice.uniform(*CHURN_PAUSES_S))
        if living and (len(living) + 1 == training.members_max or choice.random() < 0.5):  # a coin
            os.kill(living.pop(choice.randrange(len(living))), signal.SIGKILL)
            kills += 1
        else:
            # Alone on its host, the witness has as many descriptors to each of the others.
            living.append(training.come(choice.choice("bc"), "is slow").pid)
    training.trains_on(1 + len(living))
    outcome = training.end()
    assert outcome.code == 0, training.said()
    changes = len(training.check()) - 1
    (steps,) = (own for own in training.steps().values() if own[0]["process"] == witness)
    quarter = len(steps) // 4
    before, after = _most(steps[:quarter]), _most(steps[-quarter:])
    with capsys.disabled():
        print(  # noqa: T201  # what `make churn` is run for
            f"\n{kills} kills, {len(training.newcomers)} joins, {changes} changes of the world, {len(steps)} steps, each replayed."
            f"\nOf one rank, by world, in the first quarter: {before}\nin the last one: {after}"
        )
    for world in before.keys() & after.keys():
        assert after[world]["descriptors"] <= before[world]["descriptors"]
        assert after[world]["threads"] <= before[world]["threads"]
        assert after[world]["resident bytes"] - before[world]["resident bytes"] < GROWN_BYTES_MAX


def _most(steps: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, int]]:
    """By world: the most that the process had of each resource."""
    found: dict[int, dict[str, int]] = {}
    for each in steps:
        most = found.setdefault(each["world"], dict(each["uses"]))
        most.update({name: max(most[name], count) for name, count in each["uses"].items()})
    return dict(sorted(found.items()))

"""Jobs that ranks leave and join while they train, and the check of all that their ranks have noted (`join_scripts`)."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import pytest
import torch

from benches.elastic.launcher import Wanted
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.outcome import Outcome
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.start.running import RunningJob, chosen
from hocket.tools.testbed import Testbed
from tests.launch.processes import clean_environment
from tests.support import warm
from tests.torch import join_scripts as scripts

SCRIPT = Path(scripts.__file__)
PATIENCE_S = 60
PORT = 29_500


class Notes:
    """What one process has noted, each line of which is read once: jobs of many steps are asked often."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[dict[str, Any]]] = {"step": [], "draws for": []}
        self._read_bytes = 0

    def read(self, file: Path) -> None:
        """All whole lines that have come since the last time."""
        with file.open("rb") as noted:
            noted.seek(self._read_bytes)
            whole, end, _ = noted.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(end)
        for note in map(json.loads, whole.splitlines()):
            self.by_key["step" if "step" in note else "draws for"].append(note)


class Training(ABC):
    def __init__(self, directory: Path, founders: int, members_max: int) -> None:
        self.directory = directory
        self.members_max = members_max
        self.newcomers: list[subprocess.Popen[bytes]] = []
        self._notes: dict[str, Notes] = defaultdict(Notes)
        self.until(lambda: len(self.steps()) >= founders)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    @abstractmethod
    def runs(self) -> bool:
        """Whether its launcher does."""

    @property
    @abstractmethod
    def job(self) -> RunningJob:
        """As its launcher has announced it."""

    @property
    @abstractmethod
    def output(self) -> str:
        """The launcher's."""

    @abstractmethod
    def end(self) -> Any:
        """All stop after the same step."""

    @abstractmethod
    def on(self, host: str, argv: Sequence[str]) -> Sequence[str]:
        """What runs that there."""

    def come(self, host: str, flaw: str = "") -> subprocess.Popen[bytes]:
        name = f"newcomer-{len(self.newcomers)}"
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self.on(host, warm.command(SCRIPT, str(self.directory), name, flaw)),
                env=self.job.for_newcomer(clean_environment(HOCKET_HOST=host)),
                stdout=log,
                stderr=log,
            )
        self.newcomers.append(process)
        return process

    def leaves(self, name: str) -> None:
        process = self.process(name)
        os.kill(process, signal.SIGTERM)
        self.until(lambda: not Path(f"/proc/{process}").exists())

    def process(self, name: str) -> int:
        number: int = self.steps()[name][0]["process"]
        return number

    def notes(self, of: str) -> dict[str, list[dict[str, Any]]]:
        """By process: what it has noted with that key."""
        for file in self.directory.glob("*.steps"):
            self._notes[file.stem].read(file)
        return {name: list(noted.by_key[of]) for name, noted in self._notes.items() if noted.by_key[of]}

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
        since = max(own[-1]["step"] for own in self.steps().values())

        def some(own: list[dict[str, Any]]) -> bool:
            new = itertools.takewhile(lambda each: each["step"] > since, reversed(own))
            return sum(each["world"] == world for each in new) >= further

        self.until(lambda: sum(map(some, self.steps().values())) >= world)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert self.runs, self.said()
            assert time.monotonic() < deadline_s, self.said()
            time.sleep(0.02)

    def said(self) -> str:
        logs = [file.read_text() for file in sorted(self.directory.glob("newcomer-*.log"))]
        return "\n--\n".join([self.output, *logs])

    def kill(self) -> None:
        (self.directory / "stop").touch()
        for each in self.newcomers:
            each.kill()
            each.wait()

    def of_the_chain(self) -> list[list[dict[str, Any]]]:
        """By step: what those have noted of it that went on from it together.

        Whoever is shut out may have seen a step stand that the others have done again without it.
        """
        steps = self.steps()
        by_step: dict[int, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for name, own in steps.items():
            for each in own:
                by_step[each["step"]].append((name, each))
        assert sorted(by_step) == list(range(1, len(by_step) + 1))
        chain = []
        for step, own in sorted(by_step.items()):
            _, longest = max(own, key=lambda each: steps[each[0]][-1]["step"])
            others = [name for name, each in own if each["world"] != longest["world"]]
            assert all(steps[name][-1]["step"] == step for name in others), (step, others)
            chain.append([each for name, each in own if name not in others])
        return chain

    def check(self, width: int = scripts.WIDTH) -> list[list[int]]:
        """All ranks have the bits of all others after each step, each sample comes once, and one process gets the same parameters.

        `width`: of the model. Gives the worlds of the steps, where they change.
        """
        unfinished = self.drawn_by_the_dead()
        drawn: list[list[list[int]]] = []
        epochs: dict[int, Counter[int]] = defaultdict(Counter)
        for step, own in enumerate(self.of_the_chain(), 1):
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
        expected = scripts.replayed(drawn, width)
        found = list(self.directory.glob("*.pt"))
        assert len(found) == len(drawn[-1])
        for file in found:
            torch.testing.assert_close(torch.load(file), expected, rtol=1e-5, atol=1e-5)
        worlds = [len(everyone) for everyone in drawn]
        return [world for world, _ in itertools.groupby(worlds)]


Made = TypeVar("Made", bound=Training)


def killed(
    directory: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Made]
) -> Iterator[Callable[..., Made]]:
    """Yield `make`, where nobody else's jobs are found; all that it has made is killed at the end."""
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    with ExitStack() as stack:
        yield lambda *words, **named: stack.enter_context(make(*words, **named))


class Local(Training):
    """Its launcher is a thread of this process."""

    def __init__(
        self,
        directory: Path,
        hosts: str,
        founders: tuple[str, ...],
        *,
        members_min: int,
        members_max: int,
        respawn: int = 0,
        settings: Settings | None = None,
    ) -> None:
        """A rank on each of `hosts`. `founders`: what is wrong with each, and with those that take their places."""
        self._output = io.BytesIO()
        self._outcome: Outcome | None = None

        def run() -> None:
            flaws = founders or ("",) * len(hosts)
            self._outcome = launch(
                [
                    ProcessSpec(argv=warm.command(SCRIPT, str(directory), "founder", flaw), host=host)
                    for host, flaw in zip(hosts, flaws, strict=True)
                ],
                settings=settings or Settings(timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=10),
                members_min=members_min,
                members_max=members_max,
                respawn=respawn,
                out=self._output,
                err=self._output,
            )

        self._thread = threading.Thread(target=run)
        self._thread.start()
        super().__init__(directory, len(hosts), members_max)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    @property
    def job(self) -> RunningJob:
        return chosen(os.getpid())

    @property
    def output(self) -> str:
        return self._output.getvalue().decode()

    def on(self, host: str, argv: Sequence[str]) -> Sequence[str]:
        del host
        return argv

    def end(self) -> Outcome:
        (self.directory / "stop").touch()
        self._thread.join(PATIENCE_S)
        for each in self.newcomers:
            each.wait(PATIENCE_S)
        assert self._outcome is not None, self.said()
        return self._outcome

    def kill(self) -> None:
        super().kill()
        self._thread.join(PATIENCE_S)


class Launched(Training):
    """A job behind a process of its own, which writes its output to a log."""

    launcher: subprocess.Popen[bytes]
    _log: Path

    @property
    def job(self) -> RunningJob:
        return chosen(self.launcher.pid)

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")


class Spread(Launched):
    """On hosts of a testbed, whose first one has the launcher."""

    def __init__(
        self,
        directory: Path,
        bed: Testbed,
        hosts: Sequence[str],
        *,
        members_max: int,
        settings: Settings,
        flaw: str = "",
    ) -> None:
        """A rank on each of `hosts`, any of which may go on alone. `flaw`: what is special about all."""
        self._bed = bed
        self._log = directory / "launcher.log"
        first = bed.cluster.hosts[0].name
        wanted = Wanted(
            store=addresses.join(bed.address(first), PORT),
            hosts=tuple((host, tuple(bed.command(host))) for host in hosts),
            argv=tuple(warm.command(SCRIPT, str(directory), "founder", flaw)),
            environment={},
            members_min=1,
            members_max=members_max,
        )
        file = directory / "job.json"
        file.write_bytes(msgspec.json.encode(wanted))
        environment = clean_environment(TMPDIR=tempfile.gettempdir(), PYTHONPATH=os.pathsep.join(sys.path))
        with self._log.open("wb") as log:
            self.launcher = subprocess.Popen(
                self.on(first, [sys.executable, "-m", "benches.elastic.launcher", str(file)]),
                env={**environment, **settings.to_environment()},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        super().__init__(directory, len(hosts), members_max)

    @property
    def runs(self) -> bool:
        return self.launcher.poll() is None

    def on(self, host: str, argv: Sequence[str]) -> Sequence[str]:
        return self._bed.command(host, argv)

    def end(self) -> int:
        (self.directory / "stop").touch()
        code = self.launcher.wait(PATIENCE_S)
        for each in self.newcomers:
            each.wait(PATIENCE_S)
        return code

    def kill(self) -> None:
        super().kill()
        if self.runs:
            self.launcher.send_signal(signal.SIGINT)
        try:
            self.launcher.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.wait()

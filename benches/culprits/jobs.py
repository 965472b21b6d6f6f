"""Jobs of three ranks, one on each emulated host; one rank fails, and the output of all is collected."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from benches.culprits import memory, words
from benches.culprits.cases import CULPRIT, PATIENCE_S, START_S, TOP, WARNED_PATIENCE_S, WARNING, WORLD, Case
from benches.culprits.notes import TO_WATCH, Read
from benches.culprits.starting import Started
from benches.emulated import hosts
from hocket.errors import PeerError
from hocket.tools.demo.emulation import NamespaceEmulation, open_emulation

SURVIVORS = tuple(rank for rank in range(WORLD) if rank != CULPRIT)
END_S = 60.0
"""Longest time from the failure until all ranks have ended."""
TICK_S = 0.005
GIGABIT = 1e9
LAST_WORDS_MAX = 6000
BLAMED = {"elastic": words.left_out, WARNING: words.warned, TOP: words.looked}
"""How ranks are blamed, where it is not by the launcher's last word."""


class Found(Struct, frozen=True, kw_only=True):
    """End of a job.

    Attributes:
        took_s: seconds from the error until all others had ended, or, in an elastic job, had made a step without the culprit; less
        the patience of ranks that had to wait. None if this did not happen.
        blamed: ranks blamed by the launcher's last words; in an elastic job, ranks without which the others continued.
        last: each survivor's last line.
        data: `rank` of each survivor's error.
        code: the launcher's exit code, -1 if it had not ended.
        said: the whole output, or the end of it.
    """

    took_s: float | None
    blamed: tuple[int, ...]
    last: dict[int, str]
    data: dict[int, int | None]
    code: int
    said: str

    @property
    def names_culprit(self) -> bool:
        """True if the launcher blames the culprit, and no other rank."""
        return self.blamed == (CULPRIT,)

    @property
    def all_name_culprit(self) -> bool:
        """True if each survivor blames the culprit, in its last line and in its error."""
        by_line = all(words.names(line, CULPRIT) for line in self.last.values())
        return by_line and all(rank == CULPRIT for rank in self.data.values())


def run(case: Case, system: str) -> Found:
    """Run one job. PeerError if it did not begin, or without namespaces, whose cables can be cut."""
    cluster = hosts([GIGABIT] * WORLD)
    with tempfile.TemporaryDirectory(prefix="hocket-culprits-") as name, open_emulation(cluster) as emulation:
        started = Started(emulation, case.kind, Path(name))
        job = _Job(case, system, started, Path(name))
        with contextlib.ExitStack() as stack:
            stack.callback(job.end)
            if system == TOP:
                Path(name, TO_WATCH).touch()
            if system == "torchrun":
                started.torchrun()
            else:
                started.hocket(
                    elastic=system == "elastic",
                    patience_s=WARNED_PATIENCE_S if system in (WARNING, TOP) else PATIENCE_S,
                )
            if system == TOP:
                job.look()
            wrong_s = job.wrong_s()
            if case.kind == "cut cable":
                if not isinstance(emulation, NamespaceEmulation):
                    raise PeerError("cables can be cut between network namespaces alone")
                emulation.cut(cluster.hosts[CULPRIT].name)
                wrong_s = time.monotonic()
            return job.found(wrong_s)


class _Job:
    def __init__(self, case: Case, system: str, started: Started, directory: Path) -> None:
        """Begin; `directory` has the job's notes."""
        self._case, self._system, self._started, self._directory = case, system, started, directory
        self._notes = Read(directory)
        self._held: dict[int, int] = {}
        """Process descriptors of ranks."""

    def look(self) -> None:
        """Let `hocket top` look at the job, and the culprit fail once it does."""
        self._await(self._started.may_be_found, START_S)
        log = self._started.top()
        self._await(lambda: bool(words.whole_looks(log.read_text())), START_S)
        (self._directory / TO_WATCH).unlink()

    def wrong_s(self) -> float:
        """Wait for the failure, and return its time."""
        self._await(lambda: len(self._notes.processes()) == WORLD, START_S)
        for rank, process in self._notes.processes().items():
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                self._held[rank] = os.pidfd_open(process)
        self._await(lambda: self._notes.wrong_s() is not None, START_S)
        return self._notes.wrong_s() or 0.0

    def found(self, wrong_s: float) -> Found:
        """Wait for the end of the job or of the deadline, and collect the results."""
        deadline_s = time.monotonic() + END_S
        over_s: float | None = None
        while over_s is None and time.monotonic() < deadline_s:
            time.sleep(TICK_S)
            over_s = self._over_s()
        launcher = self._started.processes[0]
        while self._system == "elastic" and launcher.poll() is None and time.monotonic() < deadline_s:
            time.sleep(TICK_S)
        said = self._started.said()
        code = launcher.poll()
        waited_s = PATIENCE_S if self._case.waits and self._system not in (WARNING, TOP) else 0.0
        return Found(
            took_s=None if over_s is None else over_s - wrong_s - waited_s,
            blamed=BLAMED.get(self._system, words.blamed)(said),
            last={rank: words.last_line(self._lines(rank, said)) for rank in SURVIVORS},
            data=self._data(),
            code=-1 if code is None else code,
            said=said[-LAST_WORDS_MAX:],
        )

    def end(self) -> None:
        """Kill all processes, and remove what they left."""
        for process in self._started.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for held in self._held.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(held, signal.SIGKILL)
            select.select([held], [], [], END_S)
            os.close(held)
        for number in self._notes.processes().values():
            memory.remove(number)

    def _over_s(self) -> float | None:
        """Time of the end of the job, or time at which the survivors of an elastic job continued; None before."""
        if self._system in (WARNING, TOP) and self._case.waits:
            # Of several ranks that are blamed in turn, each counts until the culprit is, or the job has ended.
            over = CULPRIT in BLAMED[self._system](self._started.said()) or self._is_over()
        elif self._system == "torchrun":
            over = all(_has_ended(self._held[rank]) for rank in SURVIVORS if rank in self._held)
        else:
            over = self._is_over()
        went_on = [self._went_on_s(rank) for rank in SURVIVORS] if self._system == "elastic" else [None]
        known = [each for each in went_on if each is not None]
        if len(known) == len(went_on):
            return max(known)
        return time.monotonic() if over else None

    def _is_over(self) -> bool:
        return all(each.poll() is not None for each in self._started.processes)

    def _went_on_s(self, rank: int) -> float | None:
        """Time of the rank's first step without the culprit."""
        own = (step.at_s for step in self._notes.steps(rank) if step.world == WORLD - 1)
        return next(own, None)

    def _lines(self, rank: int, said: str) -> list[str]:
        if self._system != "torchrun":
            return words.of_rank(said, rank)
        return (self._directory / f"{rank}.said").read_text(errors="replace").splitlines()

    def _data(self) -> dict[int, int | None]:
        errors = {rank: self._notes.error(rank) for rank in SURVIVORS}
        return {rank: None if error is None else error.rank for rank, error in errors.items()}

    def _await(self, holds: Callable[[], bool], patience_s: float) -> None:
        deadline_s = time.monotonic() + patience_s
        while not holds():
            if time.monotonic() > deadline_s or self._started.processes[0].poll() is not None:
                raise PeerError(f"the job did not begin\n{self._started.said()[-LAST_WORDS_MAX:]}")
            time.sleep(TICK_S)


def _has_ended(held: int) -> bool:
    return bool(select.select([held], [], [], 0)[0])


def shown(ranks: Mapping[int, int | None]) -> str:
    """Describe the rank that each survivor names.

    >>> shown({0: 1, 2: None})
    'rank 0 names rank 1, rank 2 names nobody'
    """
    return ", ".join(
        f"rank {by} names {'nobody' if of is None else f'rank {of}'}" for by, of in ranks.items()
    )

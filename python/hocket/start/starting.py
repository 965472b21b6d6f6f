"""Start of a job's ranks, each behind a leash: all at the start, and others in the place of those that an elastic job loses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from hocket.errors import RendezvousError
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.start.output import Output
from hocket.start.processes import SILENCE_S, Process, ProcessSpec
from hocket.start.running import RunningJob

TICK_S = 0.02


class Starter:
    """Starter of ranks. Its processes are in `running`, whether they have ended or not; its owner ends them."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        environments: Sequence[Mapping[str, str]],
        *,
        store: str,
        journal: Path | None,
        out: BinaryIO | None,
        err: BinaryIO | None,
        quiet_others: bool,
    ) -> None:
        """Start nothing yet. `environments`: of each rank, beside those in `specs`; other arguments as in `launch`."""
        self.running: list[Process] = []
        self._specs, self._environments = specs, environments
        self._store, self._journal = store, journal
        self._output, self._quiet_others = Output(out, err, quiet_others=quiet_others), quiet_others
        self._machines = Counter(map(_machine, specs))
        self._places = {rank: rank for rank in range(len(specs))}
        """Ranks at the start, by the numbers of members that have their places."""

    def begin(self, signals: list[int], timeout_s: float) -> Sequence[Process]:
        """Start rank 0, whose leash first announces torch's store, then the others.

        Return the started processes: all, or rank 0 alone if it ended before that, or a signal came.
        """
        processes = [self._leashed(rank, spec) for rank, spec in enumerate(self._specs)]
        first, *others = processes
        first.order(self._order(first, self._environments[0], opens_meeting=True))
        deadline_s = time.monotonic() + timeout_s
        while True:
            ended = (
                first.code is not None
            )  # before polling: a program may end at once, and the others must still run
            if (meeting := first.meeting(TICK_S)) is not None:
                break
            if signals or ended:
                return [first]
            if time.monotonic() > deadline_s:
                raise RendezvousError(
                    f"rank 0 on {first.host} did not start within {timeout_s:g} s\n"
                    "hint: see whether its host answers; HOCKET_START_TIMEOUT_S gives it longer"
                )
        for process in others:
            process.order(self._order(process, {**self._environments[process.rank], **meeting}))
        return processes

    def replace(self, job: RunningJob, number: int, before: Process) -> Process:
        """Start a process that joins the job as member `number`, just as `before` was started. RendezvousError: that fails."""
        self._places[number] = self._places[before.rank]
        process = self._leashed(number, before.spec)
        own = Settings(host=before.spec.host, member=number).to_environment()
        process.order(self._order(process, {**job.of_newcomer, **own}))
        return process

    def _leashed(self, rank: int, spec: ProcessSpec) -> Process:
        shown_as = self._places[rank] if self._quiet_others else rank
        out, err = self._output.channels(shown_as, len(self._specs))
        self.running.append(Process(rank, spec, out=out, err=err))
        return self.running[-1]

    def _order(
        self, process: Process, environment: Mapping[str, str | None], *, opens_meeting: bool = False
    ) -> dict[str, object]:
        spec = process.spec
        return {
            "argv": list(spec.argv),
            "environment": {**spec.environment, **environment},
            "directory": str(Path.cwd()),
            "ranks_here": self._machines[_machine(spec)],
            "silence_s": SILENCE_S if spec.remote else 0,
            "towards": addresses.split(self._store)[0],
            "opens_meeting": opens_meeting,
            "goes_on": None
            if self._journal is None
            else f"{self._journal.absolute()}.rank{process.rank}.log",
        }


def _machine(spec: ProcessSpec) -> str | None:
    """Return the machine whose cores a rank uses: this one behind a local prefix, whatever the names of the hosts."""
    return spec.host if spec.remote else None

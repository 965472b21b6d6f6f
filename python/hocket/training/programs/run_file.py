"""File `run.json` of a training: the loaded programs, updated when an epoch brings other buckets."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Plan
from hocket.artefacts.trace import LoadedProgram, RunInfo, write_run
from hocket.job import usage
from hocket.job.rendezvous import Job
from hocket.job.trace_writes import TraceWrites
from hocket.training.beside.spans import Spans
from hocket.training.memory.buckets import LoadedBucket, launches_of
from hocket.training.programs.source import ProgramSource


class RunFile:
    """File of rank 0, written if a trace is written."""

    def __init__(self, spans: Spans | None, job: Job, source: ProgramSource, cluster: Cluster | None) -> None:
        self._directory = None if spans is None or job.rank != 0 else spans.directory
        self._info = run_info(job, None, (), cluster)
        self._writes, self._written = TraceWrites("the buckets of later epochs"), False
        self._served: tuple[LoadedProgram, ...] = ()
        if source.served is not None:
            self._served = source.served.loaded()
            if not source.in_step:
                self._info = msgspec.structs.replace(self._info, roles=source.served.roles)

    def loaded(self, source: ProgramSource, buckets: Sequence[LoadedBucket]) -> None:
        """Note that buckets of the source's current epoch are loaded. Programs of earlier epochs stay listed, without a bucket."""
        if self._directory is None:
            return
        current = source.epochs.current
        of_epoch = "" if current.number == 0 else f" of epoch {current.number}"
        before = (
            msgspec.structs.replace(each, bucket=None)
            for each in self._info.programs
            if each not in self._served
        )
        now = (
            LoadedProgram(
                program=launch.program,
                label=f"bucket {launch.number}{of_epoch}",
                bucket=launch.number,
                bytes=launch.compiled.elements * ITEM_BYTES[launch.compiled.dtype],
            )
            for launch in launches_of(buckets)
            if launch.compiled.number is None
        )
        values = (
            LoadedProgram(
                program=launch.values,
                label=f"values of bucket {launch.number}{of_epoch}",
                bytes=launch.compiled.elements * ITEM_BYTES[launch.compiled.dtype],
            )
            for launch in launches_of(buckets)
            if launch.values is not None
        )
        self._info = msgspec.structs.replace(
            self._info, plan=source.plan(current), programs=(*before, *now, *values, *self._served)
        )
        directory, info = self._directory, self._info
        if self._written:
            self._writes(lambda: write_run(directory, info))
        else:
            # A directory that cannot be written shows at the start.
            write_run(directory, info)
            self._written = True


def run_info(
    job: Job, plan: Plan | None, programs: tuple[LoadedProgram, ...], cluster: Cluster | None = None
) -> RunInfo:
    """Return the facts known at the start of a run."""
    return RunInfo(
        world=job.world,
        hosts=job.hosts,
        script=" ".join(sys.argv),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        plan=plan,
        cluster=cluster,
        clocks=job.clocks,
        relays=tuple((one, *between, other) for one, other, between in job.relays()),
        versions=usage.versions(),
        programs=programs,
    )

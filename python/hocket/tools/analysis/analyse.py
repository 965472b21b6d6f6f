"""Analysis of one or more traces: the files of a DLC trace, one per node, or one trace of Hocket's records.

A DLC file is read once, a batch at a time. `not_applicable` names questions that a kind of trace cannot answer; their result is
empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from hocket.artefacts.trace import Recording, Trace
from hocket.errors import UsageError
from hocket.tools.analysis.arrivals import ArrivalCount, Arrivals
from hocket.tools.analysis.dependencies import CriticalPath, DependencyCount, DependencyKind, PathCount
from hocket.tools.analysis.keys import KEYS_MAX, KeyTimes, of_launches
from hocket.tools.analysis.launches_path import LaunchPath, launch_path
from hocket.tools.analysis.messages import Rows, WholeIterations, of_dlc, of_records, where
from hocket.tools.analysis.phases import PhaseCount, Phases, marks_of, marks_of_launches
from hocket.tools.analysis.servers import Lateness, ServerCount, ServerTimes
from hocket.tools.analysis.sizes import SizeCount, Sizes
from hocket.tools.analysis.stragglers import Straggler, stragglers
from hocket.tools.analysis.volume import Volume, VolumeCount
from hocket.tools.formats import catalogue, dlc
from hocket.tools.formats.catalogue import Messages
from hocket.tools.formats.launches import Iteration, iterations, without_messages

if TYPE_CHECKING:
    from hocket.artefacts.trace import Records

NODES_MAX = 1 << 12
"""Limit of nodes whose times are kept apart."""


class ClockQuality(Struct, frozen=True, kw_only=True):
    """Alignment of a rank's times with the job's clock. None: too few readings of its clock."""

    node: int
    drift_ppm: float | None
    error_us: float | None


class Negative(Struct, frozen=True, kw_only=True):
    """Negative durations, which are left out of all figures. `node`: of one node; None: of the job."""

    what: str
    node: int | None
    durations: int


class Analysis(Struct, frozen=True, kw_only=True):
    """Answers from traces; units are in the names. `notes`: incomplete or unknown parts of the files."""

    files: tuple[str, ...]
    records: int
    clocks: tuple[ClockQuality, ...]
    sizes: Sizes
    volume: Volume
    arrivals: tuple[Arrivals, ...]
    phases: tuple[Phases, ...]
    servers: tuple[ServerTimes, ...]
    keys: tuple[KeyTimes, ...]
    dependencies: tuple[DependencyKind, ...]
    critical_paths: tuple[CriticalPath, ...]
    launch_path: LaunchPath | None
    stragglers: tuple[Straggler, ...]
    lateness: tuple[Lateness, ...]
    negative: tuple[Negative, ...]
    not_applicable: tuple[str, ...]
    notes: tuple[str, ...]


def analyse(
    paths: Sequence[Path], *, strict: bool = False, progress: Callable[[int], None] | None = None
) -> Analysis:
    """Analyse traces of one job. `progress` receives the number of records read.

    Raises ArtefactError when a trace cannot be read, UsageError for several that are not DLC files.

    Example: `analyse([Path("worker0.txt"), Path("server0.txt")]).phases[0].overlap_ratio`
    """
    questions = _Questions()
    notes: list[str] = []
    for path in paths:
        opened = catalogue.open_trace(path, strict=strict)
        if isinstance(opened.content, Messages):
            questions.read_messages(opened.content, progress)
        elif len(paths) > 1:
            raise UsageError(
                f"{path} is no DLC file\nhint: only the files of a DLC trace, one per node, are analysed together"
            )
        else:
            questions.read_records(opened.content, progress)
        notes += catalogue.complaints(opened, path)
    return questions.result(tuple(map(str, paths)), (*notes, *questions.notes()))


def analyse_records(trace: Trace | Recording) -> Analysis:
    """Analyse Hocket's own records, as `analyse` of their directory. Raises UsageError if servers' records need an absent extra."""
    questions = _Questions()
    questions.read_records(trace, None)
    return questions.result((), tuple(questions.notes()))


class _Questions:
    """Questions that receive the trace in parts."""

    def __init__(self) -> None:
        self.records = 0
        self.late = 0
        self._sizes, self._volume, self._arrivals = SizeCount(), VolumeCount(), ArrivalCount()
        self._dependencies = DependencyCount()
        self._phases: dict[int, PhaseCount] = {}
        self._paths: dict[int, PathCount] = {}
        self._servers: dict[int, ServerCount] = {}
        self._names: dict[int, str] = {}
        self._launch_path: LaunchPath | None = None
        self._buckets: tuple[KeyTimes, ...] = ()
        self._clocks: list[ClockQuality] = []
        self._native = False
        self.silent = (0, 0)
        """Number of launches of programs, and of those that recorded no message."""

    def read_messages(self, messages: Messages, progress: Callable[[int], None] | None) -> None:
        """Read a DLC file, from its first record to its last."""
        whole = WholeIterations()
        for batch in messages.batches:
            rows = of_dlc(batch)
            self._count(rows)
            self._dependencies.add(rows)
            self._iterations(whole.add(rows))
            if progress:
                progress(self.records)
        self._iterations(whole.rest())
        self.late += whole.late

    def read_records(self, trace: Trace | Recording, progress: Callable[[int], None] | None) -> None:
        """Read a trace of Hocket's, a rank at a time; with parameter servers, as DLC messages."""
        if trace.run.roles is not None:
            from hocket.tools.formats import dlc_server  # noqa: PLC0415  # needs pyarrow

            self._names = dlc_server.names(trace.run)
            for _, header, batches in dlc_server.to_dlc(trace, trace.run.roles):
                self.read_messages(Messages(header, batches), progress)
            return
        self._native = True
        self._names = {each.program: each.label for each in trace.run.programs if each.label}
        ranks: list[list[Iteration]] = []
        for rank in range(trace.run.world):
            records = self._records(trace, rank)
            self._count(of_records(rank, records))
            ranks.append(iterations(records))
            launches, silent = without_messages(records)
            self.silent = self.silent[0] + launches, self.silent[1] + silent
            if ranks[-1]:
                self._phases.setdefault(rank, PhaseCount()).add(marks_of_launches(ranks[-1]))
            if progress:
                progress(self.records)
        self._launch_path = launch_path(ranks, self._names)
        self._buckets = of_launches(ranks, self._names)

    def _records(self, trace: Trace | Recording, rank: int) -> Records:
        """Return a rank's records. Times of a recording in memory are aligned, if at all, by the code that made it."""
        if isinstance(trace, Recording):
            return trace.records(rank)
        own = trace.rank_records(rank)
        error_us = None if own.clock_error_ns is None else own.clock_error_ns / 1000
        self._clocks.append(ClockQuality(node=rank, drift_ppm=own.clock_drift_ppm, error_us=error_us))
        return own.records

    def _count(self, rows: Rows) -> None:
        self.records += len(rows)
        for question in (self._sizes, self._volume, self._arrivals):
            question.add(rows)

    def _iterations(self, rows: Rows) -> None:
        for node, marks in marks_of(rows):
            if len(self._phases) < NODES_MAX or node in self._phases:
                self._phases.setdefault(node, PhaseCount()).add(marks)
        for node in np.unique(rows["node"]).tolist()[:NODES_MAX]:
            own = where(rows, rows["node"] == node)
            serves = own["code"] & dlc.SERVER != 0
            if serves.any():
                self._servers.setdefault(node, ServerCount()).add(where(own, serves))
            if not serves.all():
                self._paths.setdefault(node, PathCount()).add(where(own, ~serves))

    @property
    def late_arrivals(self) -> int:
        """Number of messages that came too late in the file to count towards the times between arrivals."""
        return self._arrivals.late

    def notes(self) -> Iterator[str]:
        """Yield a sentence for whatever is in no figure, or in some alone."""
        if self.late:
            yield f"{self.late} records came long after their iteration and are not in times of iterations"
        left_out = sum(each.keys_left_out for each in self._servers.values())
        if left_out:
            yield f"{left_out} keys are beyond the first {KEYS_MAX} of a server and have no times of their own"
        launches, silent = self.silent
        if silent:
            yield (
                f"{silent} of {launches} launches of programs recorded no message (ranks of one host share memory): sizes, volumes "
                "and arrivals are of the others"
            )
        if self.late_arrivals:
            yield f"{self.late_arrivals} messages stand long after later ones and are not in the times between arrivals"
        negative = self.negative()
        if negative:
            what = ", ".join(
                f"{each.what} {each.durations}"
                if each.node is None
                else f"{each.what} of node {each.node} {each.durations}"
                for each in negative
            )
            yield (
                f"{sum(each.durations for each in negative)} durations are below zero and in no figure (a clock jumped, or what is "
                f"defined as first came second): {what}"
            )

    def negative(self) -> tuple[Negative, ...]:
        found: list[tuple[str, int | None, int]] = [
            ("d_time", None, 0 if self._native else self._dependencies.negative)
        ]
        found += [("critical path", None, self._launch_path.negative)] if self._launch_path else []
        for node, phases in sorted(self._phases.items()):
            found += [(name, node, count) for name, count in phases.negative.items()]
        for node, server in sorted(self._servers.items()):
            found += [(name, node, count) for name, count in server.negative.items()]
        found += [("critical path", node, path.negative) for node, path in sorted(self._paths.items())]
        return tuple(Negative(what=what, node=node, durations=count) for what, node, count in found if count)

    def result(self, files: tuple[str, ...], notes: tuple[str, ...]) -> Analysis:
        phases = [phase for node, each in sorted(self._phases.items()) if (phase := each.result(node))]
        paths = (each.result(node, self._names) for node, each in sorted(self._paths.items()))
        lagging = stragglers({node: each.computation for node, each in sorted(self._phases.items())})
        keys = (each.keys(node, self._names) for node, each in sorted(self._servers.items()))
        lateness = [late for node, each in sorted(self._servers.items()) for late in each.lateness(node)]
        return Analysis(
            files=files,
            records=self.records,
            clocks=tuple(self._clocks),
            sizes=self._sizes.result(self._names),
            volume=self._volume.result(),
            arrivals=self._arrivals.result(),
            phases=tuple(phases),
            servers=tuple(each.result(node) for node, each in sorted(self._servers.items())),
            keys=(*self._buckets, *(key for own in keys for key in own)),
            dependencies=() if self._native else self._dependencies.result(),
            critical_paths=tuple(path for path in paths if path),
            launch_path=self._launch_path,
            stragglers=lagging,
            lateness=tuple(lateness),
            negative=self.negative(),
            not_applicable=tuple(self._missing(bool(phases), bool(lagging or lateness))),
            notes=notes,
        )

    def _missing(self, phases: bool, compared: bool) -> list[str]:
        """Return questions without an answer, and the reason."""
        reasons = []
        if not self.records:
            reasons.append("sizes, volumes, arrivals: no messages are in it")
        if self._native:
            reasons.append("search, update: no parameter server in a trace of this kind")
            if not self._buckets:
                reasons.append("synchronisation: no launch was recorded by several ranks")
            reasons.append(
                "dependencies by type: these records hold times, not dependencies; the critical path is by times"
            )
        else:
            if not self._servers:
                reasons.append("search, update, synchronisation: no server's file was given")
            if not self._paths:
                reasons.append("phases, waiting, critical path: no worker's file was given")
        if not phases and (self._native or self._paths):
            reasons.append("phases, computation, waiting: no iteration of training is whole")
        if not compared:
            reasons.append(
                "stragglers: fewer than two workers with whole iterations, and no server's file with several workers"
            )
        return reasons

"""Measurement of all algorithms of collectives on the ranks of a job, from outside; known points are not measured again."""

from __future__ import annotations

import io
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Ladder, NetworkShape, Point, Runner, Tuning
from hocket.policy.selection import network_shape
from hocket.policy.topology import Topology
from hocket.start import run
from hocket.start.processes import ProcessSpec
from hocket.tools.tuning.algorithm_times import FLAT_BYTES_MAX, Event, Request, Task

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")
"""Collectives with several algorithms."""
SIZES_BYTES = (4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 25_000_000)
THREADS: tuple[Runner, ...] = ("thread", "thread_registered")
AGENT = (sys.executable, "-m", "hocket.tools.tuning.algorithm_times")
"""Command of a rank, if the same Python is installed."""

Progress = Callable[[int, int, str], None]
"""Called with points done, points in all and the next point."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The points to measure, for a group of all ranks with that shape."""

    shape: NetworkShape
    collectives: Sequence[str] = COLLECTIVES
    sizes_bytes: Sequence[int] = SIZES_BYTES

    @classmethod
    def of(
        cls, hosts: Sequence[str], cluster: Cluster | None, collectives: Sequence[str], sizes: Sequence[int]
    ) -> Wanted:
        """Make the points for a job; `hosts`: host of each rank. UsageError if the cluster lacks one."""
        shape = network_shape(range(len(hosts)), Topology.of(hosts, cluster))
        return cls(shape=shape, collectives=collectives, sizes_bytes=sorted(sizes))

    def tasks(self, known: Tuning) -> tuple[Task, ...]:
        """The points that `known` lacks."""
        there = {
            (ladder.collective, ladder.runner, point.size_bytes)
            for ladder in known.ladders
            if ladder.shape == self.shape
            for point in ladder.points
        }
        return tuple(
            task for task in self._all() if (task.collective, task.runner, task.size_bytes) not in there
        )

    def measured_in(self, tuning: Tuning) -> tuple[Ladder, ...]:
        return self._split(tuning, wanted=True)

    def removed_from(self, tuning: Tuning) -> Tuning:
        """The tuning without the wanted points: they will be measured again."""
        return msgspec.structs.replace(tuning, ladders=self._split(tuning, wanted=False))

    def _split(self, tuning: Tuning, *, wanted: bool) -> tuple[Ladder, ...]:
        asked = {(task.collective, task.runner, task.size_bytes) for task in self._all()}
        ladders = []
        for ladder in tuning.ladders:
            points = tuple(
                point
                for point in ladder.points
                if wanted
                == (
                    ladder.shape == self.shape
                    and (ladder.collective, ladder.runner, point.size_bytes) in asked
                )
            )
            if points:
                ladders.append(msgspec.structs.replace(ladder, points=points))
        return tuple(ladders)

    def _all(self) -> list[Task]:
        asked = [
            Task(collective=collective, runner="engine", size_bytes=size)
            for collective in self.collectives
            for size in self.sizes_bytes
        ]
        if self.shape.hosts == 1 and "all_reduce" in self.collectives:
            asked += [
                Task(collective="all_reduce", runner=runner, size_bytes=size)
                for runner in THREADS
                for size in self.sizes_bytes
                if size <= FLAT_BYTES_MAX
            ]
        return asked


def empty() -> Tuning:
    """A tuning without measurements, of this machine."""
    cores = len(os.sched_getaffinity(0))
    machine = f"{cores} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    return Tuning(measured_at=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine)


def tune(
    processes: Sequence[ProcessSpec],
    wanted: Wanted,
    *,
    known: Tuning,
    rounds: int,
    cluster: Cluster | None = None,
    store: str | None = None,
    serve: bool = True,
    progress: Progress | None = None,
    keep: Callable[[Tuning], None] = lambda _: None,
) -> Tuning:
    """Measure the points of `wanted` that `known` lacks, and return `known` with them.

    Args:
        processes: the ranks, as for `hocket.start.run.launch`; each runs `AGENT`.
        wanted: the points to measure.
        known: earlier measurements, which are kept.
        rounds: number of rounds of each algorithm at each size.
        cluster: the known network between the hosts.
        store, serve: as for `launch`.
        progress: called before each point.
        keep: called with all known measurements after each point, so that nothing is lost when a later one fails.

    Raises:
        PeerError: a rank failed; the message has its output.
    """
    tasks = wanted.tasks(known)
    if not tasks:
        return known
    request = Request(tasks=tasks, rounds=rounds, cluster=cluster)
    asked = msgspec.json.encode(request).decode()
    events = _Events(tasks, wanted.shape, known, progress, keep)
    outcome = run.launch(
        [replace(spec, argv=[*spec.argv, asked]) for spec in processes],
        store=store,
        serve=serve,
        quiet_others=True,
        out=events,
        err=io.BytesIO(),
    )
    if outcome.failures:
        first = outcome.failures[0]
        raise first.error(f"the measurement failed: {first}")
    return events.tuning


class _Events(io.BytesIO):
    """Reader of rank 0's lines; skips lines that are no events, such as its interpreter's warnings."""

    def __init__(
        self,
        tasks: Sequence[Task],
        shape: NetworkShape,
        known: Tuning,
        progress: Progress | None,
        keep: Callable[[Tuning], None],
    ) -> None:
        super().__init__()
        self.tuning = known
        self._tasks, self._shape = tasks, shape
        self._progress, self._keep = progress, keep

    def write(self, lines: bytes) -> int:  # type: ignore[override]  # the launcher writes bytes
        for line in lines.splitlines():
            with suppress(msgspec.DecodeError):
                self._take(typed.of_json(line, Event))
        return len(lines)

    def _take(self, event: Event) -> None:
        if event.point is not None:
            self.tuning = with_point(self.tuning, self._tasks[event.done - 1], self._shape, event.point)
            self._keep(self.tuning)
        elif self._progress is not None:
            task = self._tasks[event.done]
            by = "" if task.runner == "engine" else " by the calling threads"
            self._progress(
                event.done, len(self._tasks), f"{task.collective} of {task.size_bytes:,} bytes{by}"
            )


def with_point(tuning: Tuning, task: Task, shape: NetworkShape, point: Point) -> Tuning:
    """The tuning with one more point in its ladder, replacing a point of the same size."""
    key = (task.collective, task.runner, shape)
    ladders = {(each.collective, each.runner, each.shape): each for each in tuning.ladders}
    there = ladders[key].points if key in ladders else ()
    points = [each for each in there if each.size_bytes != point.size_bytes] + [point]
    ladders[key] = Ladder(
        collective=task.collective,
        runner=task.runner,
        shape=shape,
        points=tuple(sorted(points, key=lambda each: each.size_bytes)),
    )
    return msgspec.structs.replace(tuning, ladders=tuple(ladders.values()))

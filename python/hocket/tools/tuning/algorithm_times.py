"""The program that `hocket tune` runs on every rank: times all algorithms of a collective in turns, size by size.

`python -m hocket.tools.tuning.algorithm_times REQUEST`, as ranks of a job; the request is JSON. Rank 0 prints one event per
line. Before each turn all ranks meet at the job's store, where waiting ranks sleep; the first algorithm changes from
round to round. A time is that of the slowest rank.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from hocket import _native, typed
from hocket.artefacts.chunks import CHUNK_BYTES, SHARED_CHUNK_BYTES
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Point, Runner, Timing
from hocket.errors import Error
from hocket.job.rendezvous import Job, join
from hocket.policy import algorithms, single
from hocket.policy.topology import Topology

DTYPE, ITEM_BYTES = "f32", 4
FLAT_BYTES_MAX = 1_048_576
"""Limit on flat all-reduces: a larger one does not fit a slot of `crates/host`."""
ROUND_S = 0.015
"""Length of a round of one algorithm, within 1 to CALLS_MAX calls. Rounds are many and short, since a machine can be slow for
seconds at a time."""
CALLS_MAX = 100
LOOKS, LONG_S = 4, 0.1
"""Single calls before the rounds: the shortest determines the calls per round, and which algorithms are dropped. The
first call touches the memory; where calls take longer than LONG_S, one is enough."""
BEHIND, BEHIND_LONG = 4.0, 1.5
"""Ratio to the fastest algorithm's time beyond which one is not measured again: only the fastest matters. Long calls vary less."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    collective: str
    runner: Runner
    size_bytes: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster`: the known network between the ranks' hosts."""

    tasks: tuple[Task, ...]
    rounds: int
    cluster: Cluster | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Start of a task; or its end, with its point."""

    done: int
    point: Point | None = None


Run = Callable[[int], object]
"""Run a number of calls in a row."""


def run_agent(request: Request) -> None:
    """Take part in the measurement of the job that the environment describes."""
    with join() as job:
        ranks = _Ranks(job, request)
        for at, task in enumerate(request.tasks):
            _print(job, Event(done=at))
            _print(job, Event(done=at + 1, point=ranks.measure(task)))
        ranks.close()


class _Ranks:
    """This rank's engine, and the groups of the ranks of one host."""

    def __init__(self, job: Job, request: Request) -> None:
        self._job, self._rounds = job, request.rounds
        self._topology = Topology.of(job.hosts, request.cluster)
        self._group = single.by_place(self._topology.hosts, self._topology.racks)
        self._engine = job.engine()
        self._thread_groups: dict[str, _native.HostGroup] = {}

    def measure(self, task: Task) -> Point:
        """Measure a task; the result is equal on all ranks."""
        elements = max(1, task.size_bytes // ITEM_BYTES // self._job.world) * self._job.world
        if task.runner != "engine":
            return self._point(task, self._threads(elements, registered=task.runner == "thread_registered"))
        programs = self._programs(task.collective, elements)
        try:
            return self._point(task, {name: self._repeated(program) for name, program in programs.items()})
        finally:
            for program in programs.values():
                self._engine.unload(program)

    def close(self) -> None:
        self._engine.close()

    def _programs(self, collective: str, elements: int) -> dict[str, int]:
        memory = self._engine.allocate(elements * ITEM_BYTES)
        one_host = len(set(self._topology.hosts)) == 1
        loaded = {}
        for name, algorithm in algorithms.fitting(collective, self._group, self._topology).items():
            program = single.collective_program(
                collective,
                self._group,
                elements=elements,
                dtype=DTYPE,
                algorithm=algorithm.name,
                numbers=algorithm.numbers,
                chunk_bytes=SHARED_CHUNK_BYTES if one_host else CHUNK_BYTES,
            )
            loaded[name] = self._engine.load(program, {0: (memory, 0)}, priority=0, label=name)
        return loaded

    def _repeated(self, program: int) -> Run:
        launch, wait, timeout_s = self._engine.launch, self._engine.wait, self._job.settings.timeout_s

        def run(times: int) -> None:
            for _ in range(times):
                launch(program)
                wait(program, timeout_s)

        return run

    def _threads(self, elements: int, *, registered: bool) -> dict[str, Run]:
        """Runs on memory as programs of `torch.distributed` bring it, or on memory from the engine's arena."""
        values: Any = np.zeros(elements, np.float32)
        lent = (values.ctypes.data, values.nbytes)
        if registered:
            values = self._engine.allocate(elements * ITEM_BYTES)
            lent = (values.address, len(values))

        def run(group: _native.HostGroup) -> Run:
            # The memory lives as long as the objects that use it.
            return lambda times: (values, group.time_all_reduce(lent, "sum", DTYPE, times))

        if not self._thread_groups:
            self._thread_groups = {"flat": self._thread_group(FLAT_BYTES_MAX), "parts": self._thread_group(0)}
        return {name: run(group) for name, group in self._thread_groups.items()}

    def _thread_group(self, flat_bytes: int) -> _native.HostGroup:
        area = self._engine.allocate(_native.HostGroup.AREA_BYTES)
        return _native.HostGroup(
            self._engine,
            area,
            members=list(enumerate(self._gather("area", area.arena_offset))),
            timeout_s=self._job.settings.timeout_s,
            flat_bytes=(flat_bytes, flat_bytes),
        )

    def _point(self, task: Task, runs: Mapping[str, Run]) -> Point:
        once = dict.fromkeys(runs, 1)
        looks = [self._turn(runs, list(runs), once)]
        if min(looks[0].values()) < LONG_S:
            looks += [self._turn(runs, list(runs), once) for _ in range(LOOKS - 1)]
        first_s = {name: min(look[name] for look in looks) for name in runs}
        best_s = min(first_s.values())
        limit_s = best_s * (BEHIND_LONG if best_s > LONG_S else BEHIND)
        left = [name for name in runs if first_s[name] <= limit_s]
        calls = {name: max(1, min(CALLS_MAX, int(ROUND_S / first_s[name]))) for name in left}
        times_s: dict[str, list[float]] = {name: [time_s] for name, time_s in first_s.items()}
        times_s |= {name: [] for name in left}
        for turn in range(self._rounds):
            begins = turn % len(left)
            for name, time_s in self._turn(runs, left[begins:] + left[:begins], calls).items():
                times_s[name].append(time_s)
        return Point(
            size_bytes=task.size_bytes,
            timings=tuple(_timing(name, series) for name, series in times_s.items()),
        )

    def _turn(self, runs: Mapping[str, Run], names: list[str], calls: Mapping[str, int]) -> dict[str, float]:
        """Seconds per call of each algorithm, on the slowest rank."""
        own_s = {}
        for name in names:
            if calls[name] > 1:
                runs[name](1)  # wakes the threads, and aligns the ranks
            self._gather("turn", None)
            start_s = time.perf_counter()
            runs[name](calls[name])
            own_s[name] = (time.perf_counter() - start_s) / calls[name]
        everyone = self._gather("times", own_s)
        return {name: max(each[name] for each in everyone) for name in names}

    def _gather(self, name: str, value: Any) -> list[Any]:
        job = self._job
        return job.store.gather(f"tune/{name}", job.rank, job.world, value, job.settings.timeout_s)


def _timing(name: str, series_s: list[float]) -> Timing:
    ordered, last = sorted(series_s), len(series_s) - 1
    return Timing(
        algorithm=name,
        median_s=_digits(statistics.median(ordered)),
        p10_s=_digits(ordered[round(last * 0.1)]),
        p90_s=_digits(ordered[round(last * 0.9)]),
        rounds=len(ordered),
    )


def _digits(time_s: float) -> float:
    """Round to significant digits: people read these files, too."""
    return float(f"{time_s:.4g}")


def _print(job: Job, event: Event) -> None:
    if job.rank == 0:
        sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        run_agent(typed.of_json(sys.argv[1], Request))
    except Error as error:
        sys.exit(f"error: {error}")

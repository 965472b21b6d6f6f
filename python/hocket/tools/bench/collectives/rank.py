"""Rank of a benchmark of collectives: all contenders in turns, at every size.

`hocket.tools.bench.collectives.run` starts it on every rank, with the file of the request and the file for rank 0's result.

A round at one size is, for each contender: all ranks meet at the job's store, where waiting ranks sleep; one untimed
call aligns the ranks and wakes the contender's threads; on an emulated cluster the ranks meet once more; then `calls`
calls in a row are timed as one. The first contender changes from round to round, since the second finds other caches.
Time per call is that of the slowest rank, over `calls`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hocket import _native, typed
from hocket.errors import Error
from hocket.job.rendezvous import Job, join
from hocket.settings import Settings
from hocket.tools.bench.collectives import result
from hocket.tools.bench.collectives.bound import bound_s
from hocket.tools.bench.collectives.contenders import catalogue
from hocket.tools.bench.collectives.contenders.contender import Contender
from hocket.tools.bench.collectives.deadline import Deadline
from hocket.tools.bench.collectives.definitions import DTYPES, elements_of, given, wrong_elements
from hocket.tools.bench.collectives.request import Request
from hocket.tools.report import quantity

TIMED_BYTES = 2_000_000
"""Least number of bytes moved between two readings of the clock, within CALLS_MAX calls."""
CALLS_MAX = 100
EMPTY_CALLS, EMPTY_TURNS = 1000, 5
PROGRESS_S = 2.0
MARGIN_S = 5.0
"""Margin of the rank's deadline: contenders with deadlines of their own know more about missing ranks, and go first."""


def main() -> None:
    """Meet the other ranks, measure, write the result."""
    request = typed.of_json(Path(sys.argv[1]).read_bytes(), Request)
    with join(Settings.from_environment()) as job:
        if request.tcp:
            job.hosts = tuple(f"{host} of rank {rank}" for rank, host in enumerate(job.hosts))
            job.host = job.hosts[job.rank]
        measured = _Measurement(job, request).run()
        if job.rank == 0:
            Path(sys.argv[2]).write_bytes(msgspec.json.encode(measured))


class _Measurement:
    """Measurement of the contenders of one run on this rank."""

    def __init__(self, job: Job, request: Request) -> None:
        self._job, self._request = job, request
        self._deadline = Deadline(
            f"rank {job.rank} on {job.host}", timeout_s=job.settings.timeout_s + MARGIN_S
        )
        self._said_s = 0.0
        self._contenders: dict[str, Contender] = {}
        for name in request.contenders:
            self._say(f"starting {name}", seldom=False)
            with self._deadline.over(f"the start of {name}"):
                self._contenders[name] = catalogue.find(name).make(job, request)

    def run(self) -> result.Result:
        """Measure every size, on all ranks alike."""
        contestants = self._empty_calls()
        rows = [row for size_bytes in self._request.sizes_bytes for row in self._size(size_bytes)]
        for name, contender in self._contenders.items():
            with self._deadline.over(f"the end of {name}"):
                contender.close()
        return result.Result(
            collective=self._request.what,
            world=self._job.world,
            cores=len(os.sched_getaffinity(0)),
            dtype=self._request.dtype,
            tcp=self._request.tcp,
            cache_line_ns=_native.cache_line_ns() if self._job.rank == 0 else None,
            contenders=contestants,
            rows=tuple(rows),
        )

    def _empty_calls(self) -> tuple[result.Contestant, ...]:
        """Measure empty calls on all ranks at once: one by one would take `world` times as long. Load is then equal for all
        contenders."""
        times_s: dict[str, list[float]] = {name: [] for name in self._contenders}
        for turn in range(EMPTY_TURNS):
            for name, contender in self._contenders.items():
                with self._deadline.over(f"{name}, empty calls"):
                    self._meet(f"empty/{turn}/{name}")
                    contender.empty(1)
                    start_s = time.perf_counter()
                    contender.empty(EMPTY_CALLS)
                    times_s[name].append((time.perf_counter() - start_s) / EMPTY_CALLS)
        medians_s = {name: statistics.median(each) for name, each in times_s.items()}
        everyone = self._gather("empty", medians_s)
        return tuple(
            result.Contestant(
                name=name,
                about=contender.about,
                empty_call_s=statistics.median(each[name] for each in everyone),
            )
            for name, contender in self._contenders.items()
        )

    def _size(self, size_bytes: int) -> list[result.Row]:
        request, world = self._request, self._job.world
        elements = elements_of(size_bytes, request.dtype, world)
        size_bytes = elements * np.dtype(DTYPES[request.dtype]).itemsize
        shown = f"{request.what} of {quantity.size(size_bytes)}"
        calls = max(1, min(CALLS_MAX, TIMED_BYTES // size_bytes))
        self._say(shown, seldom=False)
        wrong = dict.fromkeys(self._contenders, 0)
        for name, contender in self._contenders.items():
            with self._deadline.over(f"{name}, {shown}, set-up"):
                contender.prepare(request.what, elements, request.dtype)
        for name in self._contenders:
            wrong[name] += self._check(name, elements, shown)
        times_s, cpu_s = self._rounds(elements, calls, shown)
        for name in self._contenders:
            wrong[name] += self._check(name, elements, shown)
        everyone = self._gather(shown, [wrong, times_s, cpu_s])
        by_contender = {
            name: result.slowest([each[name] for _, each, _ in everyone]) for name in self._contenders
        }
        first = by_contender[request.contenders[0]]
        return [
            result.row(
                name,
                series,
                first,
                what=request.what,
                world=world,
                size_bytes=size_bytes,
                elements=elements,
                calls=calls,
                wrong=sum(each[name] for each, _, _ in everyone),
                cpu_s=sum(statistics.median(each[name]) for _, _, each in everyone),
                bound_s=bound_s(request.what, size_bytes, request.cluster),
            )
            for name, series in by_contender.items()
        ]

    def _check(self, name: str, elements: int, shown: str) -> int:
        contender, request, job = self._contenders[name], self._request, self._job
        with self._deadline.over(f"{name}, {shown}, check"):
            contender.write(given(elements, request.dtype, job.rank))
            self._meet(f"check/{name}/{shown}")
            contender.run(1)
            return wrong_elements(request.what, contender.read(), rank=job.rank, world=job.world)

    def _rounds(
        self, elements: int, calls: int, shown: str
    ) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Return seconds per call, by round, by the clock and of this rank's processor, all threads.

        Sums are of zeros, which stay zeros however often they are added.
        """
        zeros = np.zeros(elements, DTYPES[self._request.dtype])
        for contender in self._contenders.values():
            contender.write(zeros)
        names = list(self._contenders)
        times_s: dict[str, list[float]] = {name: [] for name in names}
        cpu_s: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(self._request.rounds):
            self._say(f"{shown}, round {turn + 1} of {self._request.rounds}", seldom=True)
            begins = turn % len(names)
            for name in names[begins:] + names[:begins]:
                contender = self._contenders[name]
                with self._deadline.over(f"{name}, {shown}, round {turn + 1}"):
                    self._meet(f"round/{name}/{shown}")
                    contender.run(1)
                    if self._request.cluster is not None:
                        # Over slow links, ranks leave a call up to tenths of a second apart, which would count in the
                        # next.
                        self._meet(f"again/{name}/{shown}")
                    start_s, busy_s = time.perf_counter(), time.process_time()
                    contender.run(calls)
                    times_s[name].append((time.perf_counter() - start_s) / calls)
                    cpu_s[name].append((time.process_time() - busy_s) / calls)
        return times_s, cpu_s

    def _meet(self, name: str) -> None:
        self._gather(name, None)

    def _gather(self, name: str, value: Any) -> list[Any]:
        job = self._job
        return job.store.gather(f"bench/{name}", job.rank, job.world, value, job.settings.timeout_s)

    def _say(self, what: str, *, seldom: bool) -> None:
        """Print progress, from one rank; `seldom`: only if nothing was printed for a while."""
        if self._job.rank != 0 or (seldom and time.monotonic() - self._said_s < PROGRESS_S):
            return
        self._said_s = time.monotonic()
        sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    try:
        main()
    except Error as error:
        sys.stderr.write(f"error: {error}\n")
    except Exception:  # of any kind: MPI would not let the process end in order
        traceback.print_exc()
    else:
        sys.exit(0)
    sys.stderr.flush()
    os._exit(1)  # otherwise MPI waits at its end for ranks in the middle of a collective

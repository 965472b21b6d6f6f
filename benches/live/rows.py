"""Rows of `python -m benches live`."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from benches.row import Row
from hocket.errors import RendezvousError, UsageError
from hocket.job.live.files import live_jobs
from hocket.job.live.observer import Observer
from hocket.job.live.progress import Progress
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

SHARE_MAX = 0.5
"""Target: percent of a core that the reporting thread may take."""
LOOKS = 20
MARKS = 20_000


def rows_of(world: int, duration_s: float) -> Mapping[str, Callable[[], Iterable[Row]]]:
    """Return the rows by name."""
    return {
        "job": functools.partial(_job, world, duration_s),
        "marks": _marks,
    }


def _job(world: int, duration_s: float) -> Iterator[Row]:
    """Time of the reporting thread of each rank, and of looks at the job meanwhile."""
    looks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ranks.jsonl")
        argv = [sys.executable, "-m", "benches.live.rank", str(duration_s), str(file)]
        specs = [ProcessSpec(argv=argv, environment={"PYTHONPATH": ":".join(sys.path)})] * world
        done = threading.Event()
        looker = threading.Thread(target=_look, args=(world, looks, done))
        looker.start()
        err = io.BytesIO()
        try:
            outcome = launch(specs, settings=Settings(start_timeout_s=300.0), out=err, err=err)
        finally:
            done.set()
            looker.join()
        if outcome.code != 0:
            raise RendezvousError(f"a rank failed: {outcome}\n{err.getvalue().decode()}")
        found = [json.loads(line) for line in file.read_text().splitlines()]
    what = f"of {world} ranks at a report a second"
    shares = [100 * each["thread_s"] / each["time_s"] for each in found]
    yield Row.over(
        shares, name="thread", what=f"of a core for the reporting thread, {what}", target=SHARE_MAX, unit="%"
    )
    if looks:
        yield Row.over(
            [1e3 * each for each in looks], name="look", what=f"a look at the job, {what}", unit="ms"
        )


def _look(world: int, looks: list[float], done: threading.Event) -> None:
    """Look at the one job of this process, once it is complete."""
    with contextlib.ExitStack() as stack:
        observer: Observer | None = None
        while not done.wait(0.5) and len(looks) < LOOKS:
            jobs = [each for each in live_jobs() if each.launches]
            if observer is None and jobs:
                found = jobs[-1]
                observer = stack.enter_context(contextlib.closing(Observer(lambda found=found: found)))  # type: ignore[misc]
            if observer is None:
                continue
            began_s = time.monotonic()
            with contextlib.suppress(RendezvousError, UsageError):
                if len(observer.look().ranks) == world:
                    looks.append(time.monotonic() - began_s)


def _marks() -> Iterator[Row]:
    """Time that the thread that trains spends on noting what it does, in a step."""
    progress = Progress()
    times_us = []
    for _ in range(MARKS):
        began_ns = time.perf_counter_ns()
        progress.forward_began()
        progress.backward_began()
        progress.wait_began()
        progress.wait_ended()
        progress.step_ended()
        progress.stepped()
        times_us.append((time.perf_counter_ns() - began_ns) * 1e-3)
    yield Row.over(times_us, name="marks", what="a step, to note what the rank does", unit="µs")

"""Rows of `python -m benches elastic` on hosts that are cut off, and on busy machines, which may not be taken for them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benches.elastic.jobs import WORLD, Job, any_rank, four_hosts, going_on_s, hocket_job
from benches.row import Row
from hocket.tools.testbed import Testbed

CUTS = 5
BUSY_A_CORE = 2
BUSY_S = 3600.0
LOOKS_S = 5.0
GOES_ON_S = 1.3


@contextmanager
def _busy() -> Iterator[None]:
    """Keep all cores of this machine busy with processes that compute."""
    count = BUSY_A_CORE * len(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def _cut(job: Job, bed: Testbed, host: str, what: str) -> list[Row]:
    all_s, stopped_s, began_s, draw = [], [], 0.0, random.Random(0)  # noqa: S311  # no secret
    for _ in range(CUTS):
        _, others = any_rank(job, draw, began_s)
        bed.cut(hosts=[host])
        at_s = time.monotonic()
        later = job.settled(WORLD - 1, since_s=at_s)
        all_s.append(going_on_s(later, others.__contains__, at_s=at_s, world=WORLD - 1))
        stopped_s.append(job.stood_still_s())
        bed.mend(hosts=[host])
        began_s = time.monotonic()
        job.join(host)
    noticed_s = [total_s - still_s for total_s, still_s in zip(all_s, stopped_s, strict=True)]
    return [
        Row.over(
            all_s,
            name="host-killed",
            what=f"{what}: until all others have stepped, less a step",
            target=GOES_ON_S,
            unit="s",
        ),
        Row.over(
            noticed_s, name="host-killed", what=f"{what}: of that, until rank 0 stops", target=1.0, unit="s"
        ),
        Row.over(stopped_s, name="host-killed", what=f"{what}: of that, from there on", unit="s"),
    ]


def host_killed() -> list[Row]:
    """Rows of a host whose cable is cut without any notice, on an idle machine and on a busy one."""
    cluster = four_hosts()
    slots = [host.name for host in cluster.hosts]
    what = "a host's cable is cut"
    with Testbed(cluster) as bed, hocket_job(bed, slots) as job:
        rows = _cut(job, bed, slots[-1], what)
        with _busy():
            return rows + _cut(job, bed, slots[-1], f"{what}, {BUSY_A_CORE} busy processes a core beside")


def busy() -> list[Row]:
    """Row of a busy machine all of whose ranks are there: none may be left behind."""
    cluster = four_hosts()
    slots = [host.name for host in cluster.hosts]
    with Testbed(cluster) as bed, hocket_job(bed, slots) as job, _busy():
        until_s = time.monotonic() + BUSY_S
        while time.monotonic() < until_s:
            time.sleep(LOOKS_S)
            job.settled(WORLD, since_s=time.monotonic())
        steps = job.steps().values()
    fewer = sum(step.world < WORLD for own in steps for step in own)
    what = f"{BUSY_A_CORE} busy processes a core for {BUSY_S:g} s: steps among fewer ranks"
    return [Row(name="busy", what=what, value=float(fewer), target=0.0)]

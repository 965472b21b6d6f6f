"""Rank of a job that does next to nothing: `python -m benches.live.rank SECONDS FILE`.

It steps and waits for the others at the store, as training does at the wire. FILE gets, from each rank a line, the processor time
that the reporting thread took, the seconds, and the number of steps.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from hocket.job.rendezvous import Job, join

STEP_S = 0.1
BARRIER_S = 120.0


def main() -> None:
    """Run until the time is over for rank 0."""
    duration_s, file = float(sys.argv[1]), Path(sys.argv[2])
    with join() as job:
        job.publish()
        job.store.barrier("begin", job.rank, job.world, BARRIER_S)
        # What connecting took is no cost of a step.
        time.sleep(1.0)
        thread = next(each for each in threading.enumerate() if each.name == "hocket-live")
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        began_s, used_s, steps = time.monotonic(), time.clock_gettime(clock), 0
        while any(
            job.store.gather("on", job.rank, job.world, time.monotonic() - began_s < duration_s, BARRIER_S)
        ):
            _step(job)
            steps += 1
        line = {
            "thread_s": time.clock_gettime(clock) - used_s,
            "time_s": time.monotonic() - began_s,
            "steps": steps,
        }
        with file.open("a") as out:
            out.write(json.dumps(line) + "\n")
        job.store.barrier("end", job.rank, job.world, BARRIER_S)


def _step(job: Job) -> None:
    progress = job.progress
    progress.forward_began()
    progress.backward_began()
    time.sleep(STEP_S)
    progress.wait_began()
    progress.wait_ended()
    progress.step_ended()
    progress.stepped()


if __name__ == "__main__":
    main()

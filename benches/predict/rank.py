"""One rank of `python -m benches predict`: steps of each plan, buckets are launched at the profile's times of readiness."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from hocket.artefacts import files
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Plan, Traced
from hocket.artefacts.profile import Profile
from hocket.job.rendezvous import join
from hocket.planning.compile import proven, unverified, votes_program
from hocket.settings import Settings

WARM_UP_STEPS = 2
CHOSEN, BUCKETS_MAX = 1 << 31, 1 << 12
"""First number of programs, and numbers per plan; fixed since ranks that do not train have no part in some programs."""
SETTLE_S = 0.05
"""Pause after which queues and token buckets of the emulated links have recovered."""


def main() -> None:
    """Run the steps; rank 0 writes `steps.json`: the slowest rank's time of each step, by plan."""
    directory, count, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    settings = Settings.from_environment()
    profile = files.read(directory / "profile.json", Profile)
    ready_s = {gradient.name: gradient.ready_s for gradient in profile.gradients}
    with join(settings) as job:
        engine = job.engine()
        hosts = [f"{rank}" for rank in range(job.world)]
        meeting = engine.load(
            votes_program(hosts, 1), {0: (engine.allocate(4), 0)}, priority=0, label="barrier"
        )
        slowest = []
        for at in range(count):
            plan = files.read(directory / f"{at}.json", Plan)
            loaded = []
            for index, bucket in enumerate(plan.buckets):
                program = (unverified if isinstance(bucket.route, Traced) else proven)(index, plan)
                if job.rank >= program.world:
                    # Only ranks that train have this bucket.
                    continue
                memory = engine.allocate(bucket.elements * ITEM_BYTES[bucket.dtype])
                number = engine.load(
                    program,
                    {0: (memory, 0)} if program.buffers(job.rank) else {},
                    priority=bucket.priority,
                    label=program.name,
                    number=CHOSEN + at * BUCKETS_MAX + index,
                )
                trains = job.rank in plan.workers
                loaded.append((max(ready_s[name] for name in bucket.variables) if trains else 0.0, number))
            times_s = []
            for step in range(WARM_UP_STEPS + steps):
                time.sleep(SETTLE_S)
                engine.launch(meeting)
                engine.wait(meeting, settings.timeout_s)
                began_s = time.perf_counter()
                for after_s, number in sorted(loaded):
                    time.sleep(max(0.0, began_s + after_s - time.perf_counter()))
                    engine.launch(number)
                time.sleep(max(0.0, began_s + profile.backward_s - time.perf_counter()))
                for _, number in loaded:
                    engine.wait(number, settings.timeout_s)
                if step >= WARM_UP_STEPS:
                    times_s.append(time.perf_counter() - began_s)
            everyone = job.store.gather(f"predict/{at}", job.rank, job.world, times_s, settings.timeout_s)
            slowest.append([max(step) for step in zip(*everyone, strict=True)])
            for _, number in loaded:
                engine.unload(number)
        engine.close()
        if job.rank == 0:
            (directory / "steps.json").write_text(json.dumps(slowest))


if __name__ == "__main__":
    main()

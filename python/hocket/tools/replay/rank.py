"""Rank of a replay: it sleeps where the recorded rank computed, launches when it did, and waits for the same buckets."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from hocket import typed
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.job.rendezvous import join
from hocket.planning.compile import programs, votes_program
from hocket.settings import Settings
from hocket.tools.replay.schedule import Schedule


def main() -> None:
    """Run a rank. Rank 0 writes `steps.json` into the directory: the slowest rank's seconds of each step."""
    directory, repeat = Path(sys.argv[1]), int(sys.argv[2])
    settings = Settings.from_environment()
    recorded = typed.of_json((directory / "schedule.json").read_bytes(), Schedule)
    with join(settings) as job:
        engine = job.engine()
        meeting = engine.load(
            votes_program([str(rank) for rank in range(job.world)], 1),
            {0: (engine.allocate(4), 0)},
            priority=0,
            label="start",
        )
        numbers = []
        for bucket, program in zip(recorded.plan.buckets, programs(recorded.plan), strict=True):
            memory = engine.allocate(bucket.elements * ITEM_BYTES[bucket.dtype])
            numbers.append(
                engine.load(program, {0: (memory, 0)}, priority=bucket.priority, label=program.name)
            )
        times_s = []
        for _ in range(repeat):
            engine.launch(meeting)
            engine.wait(meeting, settings.timeout_s)
            for step in recorded.ranks[job.rank]:
                began_s = time.perf_counter()
                for at, after_s in step.launches:
                    _sleep_until(began_s + after_s)
                    engine.launch(numbers[at])
                for number in numbers:
                    engine.wait(number, settings.timeout_s)
                _sleep_until(time.perf_counter() + step.tail_s)
                times_s.append(time.perf_counter() - began_s)
        everyone = job.store.gather("replay", job.rank, job.world, times_s, settings.timeout_s)
        engine.close()
        if job.rank == 0:
            slowest = [max(step) for step in zip(*everyone, strict=True)]
            (directory / "steps.json").write_text(json.dumps(slowest))


def _sleep_until(moment_s: float) -> None:
    time.sleep(max(0.0, moment_s - time.perf_counter()))


if __name__ == "__main__":
    main()

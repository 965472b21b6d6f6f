"""Row `light` of `python -m benches elastic`: many ranks of one host, which train next to nothing and import no framework.

A rank waits in each step, as if it computed. The launcher and all ranks share this machine's cores.
"""

from __future__ import annotations

import os
import random
import signal
import time

from benches.elastic.jobs import GIGABIT, hocket_job, step_s, stepped_s
from benches.row import Row
from hocket.artefacts.cluster import Cluster, Host
from hocket.tools.testbed import Testbed

RANKS, STARTS, KILLS = 64, 3, 10
STARTS_S, GOES_ON_S = 10.0, 1.0


def light() -> list[Row]:
    """Rows of 64 ranks that start, of which random ones are killed, one after the other."""
    started_s, all_s, usual_s = [], [], []
    draw = random.Random(0)  # noqa: S311  # no secret
    cluster = Cluster(hosts=(Host(name="h0", slots=RANKS, bandwidth_bit_per_s=GIGABIT),))
    slots = ["h0"] * RANKS
    with Testbed(cluster) as bed:
        for start in range(STARTS):
            began_s = time.monotonic()
            with hocket_job(bed, slots, script="benches.elastic.light_rank") as job:
                started_s.append(max(own[0].at_s for own in job.steps().values()) - began_s)
                for left in range(RANKS - 1, RANKS - 1 - KILLS, -1) if start == STARTS - 1 else ():
                    there = job.settled(left + 1, since_s=time.monotonic())
                    usual_s.append(step_s(list(there.values())))
                    victim = draw.choice(sorted(there))
                    time.sleep(draw.uniform(0, usual_s[-1]))
                    os.kill(victim, signal.SIGKILL)
                    at_s = time.monotonic()
                    later = job.settled(left, since_s=at_s)
                    all_s.append(stepped_s(later, victim.__ne__, at_s=at_s, world=left))
    return [
        Row.over(
            started_s,
            name="light",
            what=f"{RANKS} ranks start: until all have made their first step",
            target=STARTS_S,
            unit="s",
        ),
        Row.over(
            all_s,
            name="light",
            what=f"one of {RANKS} or fewer is killed: until all others have stepped",
            target=GOES_ON_S,
            unit="s",
        ),
        Row.over(usual_s, name="light", what="a step of theirs, with a wait of 0.1 s", unit="s"),
    ]

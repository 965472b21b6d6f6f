"""Row `sites` of `python -m benches elastic`: four sites of two ranks that step alone, of which one is killed and comes back.

The network is that of `benches.delays.sites`: 100 Mbit/s and a round trip of 50 ms between sites. Computation is a wait.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Collection
from itertools import pairwise

import hocket.torch as hk
from benches.delays import sites
from benches.elastic.jobs import Job, Step, hocket_job
from benches.row import Row
from hocket.tools.report.quantity import TIMES
from hocket.tools.testbed import Testbed

LOCAL = hk.Local(every=30, rate=0.7, momentum=0.9)
USUAL_S, BETWEEN_S, AFTER_S = 20.0, 20.0, 30.0
"""Seconds before the site is killed, until it is started anew, and from when it has come back."""
ALIVE = 0.95


def lost_site() -> list[Row]:
    """Rows of a site of four that is killed and joins again."""
    cluster = sites.network()
    slots = [host.name for host in cluster.hosts]
    draw = random.Random(0)  # noqa: S311  # no secret
    with Testbed(cluster) as bed, hocket_job(bed, slots, "sites") as job:
        began_s = time.monotonic()
        time.sleep(USUAL_S + draw.uniform(0, LOCAL.every * sites.CASES[sites.SMALL].computed_s))
        last = {process: own[-1] for process, own in job.steps().items()}
        lost = {process for process, own in last.items() if own.rank >= len(slots) - sites.RANKS}
        killed_s = time.monotonic()
        for process in lost:
            os.kill(process, signal.SIGKILL)
        time.sleep(BETWEEN_S)
        for host in slots[-sites.RANKS :]:
            job.join(host)
        asked_s = time.monotonic()
        job.settled(len(slots), since_s=asked_s)
        came_s = min(own[0].at_s for process, own in job.steps().items() if process not in last)
        time.sleep(AFTER_S)
        ended_s = time.monotonic()
        others = last.keys() - lost
        usual_s = _iteration_s(job, others, began_s, killed_s)
        fewer_s = _iteration_s(job, others, killed_s, asked_s)
        pauses_s = [
            _longest_s(job, others, at_s)
            for at_s in ((began_s, killed_s), (killed_s, asked_s), (asked_s, ended_s))
        ]
        whole_s = _iteration_s(job, others, asked_s, ended_s)
    what = "a site of four is killed and joins again"
    return [
        Row(
            name="sites",
            what="an iteration of eight ranks, with its share of exchanges",
            value=usual_s * 1e3,
            unit="ms",
        ),
        Row(name="sites", what="the same of the six that are left", value=fewer_s * 1e3, unit="ms"),
        Row(
            name="sites",
            what=f"{what}: iterations of the others from its new start until 30 s after its return, over those of three sites",
            value=fewer_s / whole_s,
            target=ALIVE,
            least=True,
            unit=TIMES,
        ),
        *(
            Row(
                name="sites",
                what=f"{what}: longest time between two iterations, {when}",
                value=pause_s,
                unit="s",
            )
            for when, pause_s in zip(
                ("before", "from its end on", "from its new start on"), pauses_s, strict=True
            )
        ),
        Row(
            name="sites",
            what=f"{what}: from its new start until its first iteration",
            value=came_s - asked_s,
            unit="s",
        ),
    ]


def _between(job: Job, process: int, from_s: float, to_s: float) -> list[Step]:
    return [each for each in job.steps()[process] if from_s < each.at_s <= to_s]


def _iteration_s(job: Job, processes: Collection[int], from_s: float, to_s: float) -> float:
    """Seconds of an iteration of these, over a time of whole exchanges."""
    found = []
    for process in processes:
        own = _between(job, process, from_s, to_s)
        whole = (len(own) - 1) // LOCAL.every * LOCAL.every
        found.append((own[whole].at_s - own[0].at_s) / whole)
    return sum(found) / len(found)


def _longest_s(job: Job, processes: Collection[int], window_s: tuple[float, float]) -> float:
    ends_s = [[each.at_s for each in _between(job, process, *window_s)] for process in processes]
    return max(b - a for own in ends_s for a, b in pairwise(own))

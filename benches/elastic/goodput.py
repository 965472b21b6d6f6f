"""Rows `goodput` of `python -m benches elastic`: work that counts while ranks are killed, and others take their places.

The job says its goodput itself. Beside it stands a count of its own, of the steps that ranks have noted: a rank's steps over the
time in which it lived, at the pace of the median step of as many ranks. torchft's jobs have that count alone.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median

from msgspec import structs

from benches.elastic.contenders import start_replica, torchft_job
from benches.elastic.jobs import Job, Steps, four_hosts, hocket_job
from benches.row import Row
from hocket.artefacts.trace import read
from hocket.errors import PeerError
from hocket.tools.testbed import Testbed

LASTS_S, PERIOD_S = 600.0, 15.0
"""Duration of a job, and time between two failures."""
TARGET = 0.98
AGREE = 0.02
"""Limit of the difference of two counts, one by mean steps and one by median ones."""
ALIVE_S = 2.0
"""Age of the last step of a process that trains, at most."""


def goodput() -> list[Row]:
    """Rows of a job of Hocket, without and with a rank in reserve."""
    return [*_of_hocket(spares=0), *_of_hocket(spares=1)]


def goodput_of_torchft() -> list[Row]:
    """Rows of a job of torchft, tuned."""
    with Testbed(four_hosts()) as bed, torchft_job(bed, tuned=True) as job:
        killed = churned(job, _host_of_replica, start_replica)
        own, of_all = counted(job.steps(), killed)
    name = "goodput-torchft"
    return [
        Row(name=name, what="goodput of torchft tuned, counted from its steps", value=own),
        Row(name=name, what="of as many ranks all the time", value=of_all),
    ]


def _of_hocket(*, spares: int) -> list[Row]:
    cluster = four_hosts()
    slots = [host.name for host in cluster.hosts]
    how = "with a rank in reserve" if spares else "without a rank in reserve"
    with Testbed(cluster) as bed, hocket_job(bed, slots, traces=True) as job:
        for at in range(spares):
            job.join(slots[at])
        killed = churned(job, host_of_rank, Job.join)
        own, of_all = counted(job.steps(), killed)
        job.close()
        found = read(job.trace).goodput()
        if found is None:
            raise PeerError(f"the job has said no goodput\n{job.said()}")
    name = "goodput"
    lost = structs.asdict(found.lost)
    return [
        Row(
            name=name, what=f"goodput in the job's words, {how}", value=found.share, target=TARGET, least=True
        ),
        Row(name=name, what=f"the same, counted from steps, {how}", value=own, target=TARGET, least=True),
        Row(name=name, what=f"difference of the two, {how}", value=abs(own - found.share), target=AGREE),
        *(
            Row(name=name, what=f"of that, {cause.replace('_', ' ')}, {how}", value=work / found.undisturbed)
            for cause, work in lost.items()
        ),
        Row(
            name=name,
            what=f"of as many ranks all the time, in the job's words, {how}",
            value=found.share_of_all,
        ),
        Row(name=name, what=f"the same, counted from steps, {how}", value=of_all),
    ]


def churned(
    job: Job, host_of: Callable[[Job, int], str], replace: Callable[[Job, str], object]
) -> dict[int, float]:
    """Kill a process of a job each `PERIOD_S`, at random, and start another one on its host. Return the times by process."""
    draw = random.Random(0)  # noqa: S311  # no secret
    killed: dict[int, float] = {}
    began_s = time.monotonic()
    for turn in range(1, int(LASTS_S / PERIOD_S)):
        time.sleep(max(0.0, began_s + turn * PERIOD_S - time.monotonic()))
        alive = sorted(_alive(job) - killed.keys())
        if len(alive) > 1:
            process = draw.choice(alive)
            host = host_of(job, process)
            os.kill(process, signal.SIGKILL)
            killed[process] = time.monotonic()
            replace(job, host)
    time.sleep(max(0.0, began_s + LASTS_S - time.monotonic()))
    return killed


def _alive(job: Job) -> set[int]:
    """Processes that have made a step just now."""
    now_s = time.monotonic()
    return {process for process, own in job.steps().items() if own[-1].at_s > now_s - ALIVE_S}


def host_of_rank(_job: Job, process: int) -> str:
    """Return the host on which a rank's process runs."""
    own = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next(each.partition(b"=")[2].decode() for each in own if each.startswith(b"HOCKET_HOST="))


def _host_of_replica(job: Job, process: int) -> str:
    address = (job.directory / f"{process}.ready").read_text()
    return next(host.name for host in job.bed.cluster.hosts if job.bed.address(host.name) == address)


def counted(steps: Steps, killed: Mapping[int, float]) -> tuple[float, float]:
    """Steps of all processes over those of the same ranks undisturbed, and over those of as many as began, all the time.

    `killed`: times by process. Undisturbed, a step takes the median time of steps among as many ranks, or, where there are
    none, among the next number.
    """
    times_s: dict[int, list[float]] = defaultdict(list)
    for own in steps.values():
        for before, after in pairwise(own):
            if before.world == after.world:
                times_s[after.world].append(after.at_s - before.at_s)
    medians_s = {world: median(each) for world, each in times_s.items()}

    def usual_s(world: int) -> float:
        return medians_s[min(medians_s, key=lambda each: abs(each - world))]

    made, undisturbed = 0, 0.0
    for process, own in steps.items():
        made += len(own) - 1
        undisturbed += sum(
            (after.at_s - before.at_s) / usual_s(after.world) for before, after in pairwise(own)
        )
        if process in killed:
            undisturbed += max(0.0, killed[process] - own[-1].at_s) / usual_s(own[-1].world)
    first_s = min(own[0].at_s for own in steps.values())
    last_s = max(own[-1].at_s for own in steps.values())
    began = max(own[0].world for own in steps.values() if own[0].at_s < first_s + ALIVE_S)
    return made / undisturbed, made / (began * (last_s - first_s) / usual_s(began))

"""Row `spot` of `python -m benches elastic`: goodput on machines of which a cloud takes back some, and gives others.

The traces are measured numbers of spot instances on AWS EC2, of a fleet that asks for 12: those in `doc/data` of
https://github.com/uclasystem/bamboo at 8080929 (MIT, Copyright (c) 2022 UCLASystem; Thorpe and others, Bamboo, NSDI '23). Drawn of
two is the hour after the fleet was whole for the first time; the third one begins ten minutes before the first one's next change,
after hours without any. An hour is replayed in three minutes. A third of the instances, rounded, are hosts of the testbed, at least
one. A host that goes is killed without notice; chance decides which.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import NamedTuple

from benches.elastic.goodput import TARGET, counted, host_of_rank
from benches.elastic.jobs import GIGABIT, Job, hocket_job
from benches.emulated import hosts
from benches.row import Row
from hocket.tools.testbed import Testbed

FLEET, OF_A_HOST = 12, 3
LASTS_S, FASTER = 3600.0, 20.0


class Spot(NamedTuple):
    """Trace of an instance type in a zone: from each second on, how many instances there were. It begins at `from_s`."""

    name: str
    from_s: float
    changes: tuple[tuple[float, int], ...]

    def replayed(self) -> list[tuple[float, int]]:
        """Return changes of the number of hosts, in seconds since the job has begun; the first is at its start."""
        until_s = self.from_s + LASTS_S
        here = [
            (max(0.0, at_s - self.from_s) / FASTER, _hosts(count))
            for at_s, count in self.changes
            if at_s < until_s
        ]
        return [each for before, each in zip([(0.0, 0), *here], here, strict=False) if each[1] != before[1]]


def _hosts(instances: int) -> int:
    return max(1, (instances + OF_A_HOST // 2) // OF_A_HOST)


_EAST_1C = "g4dn.xlarge, us-east-1c, 2020-11-20"
SPOT = (
    Spot(
        _EAST_1C,
        21556,
        (
            *((21556, 12), (21637, 5), (21725, 12), (21849, 10), (22015, 12), (23556, 8), (23648, 7)),
            *((23763, 6), (24378, 4), (24475, 2), (24921, 12), (25087, 2)),
        ),
    ),
    Spot(
        "g4dn.xlarge, us-east-1d, 2020-11-23",
        37678,
        (
            *((37678, 12), (38289, 11), (38400, 6), (38476, 4), (39236, 12), (39702, 11), (40331, 7)),
            *((40624, 11), (40730, 8), (41039, 10), (41314, 12)),
        ),
    ),
    Spot(
        f"{_EAST_1C}, later",
        42464,
        ((42464, 12), (43064, 8), (43130, 6), (43574, 5), (44224, 9), (44247, 12)),
    ),
)


def spot() -> list[Row]:
    """Rows of a job of Hocket on each of these, without a rank in reserve."""
    rows = []
    for each in SPOT:
        own, of_all, killed = _trained(each)
        what = f"{each.name}: {killed} ranks killed"
        rows += [
            Row(name="spot", what=f"goodput, {what}", value=own, target=TARGET, least=True),
            Row(name="spot", what=f"of as many ranks as at the start all the time, {what}", value=of_all),
        ]
    return rows


def _trained(trace: Spot) -> tuple[float, float, int]:
    """Train on the hosts that are there; return goodput, the same over all hosts of the start, and the number of ranks killed."""
    cluster = hosts([GIGABIT] * (FLEET // OF_A_HOST))
    names = [host.name for host in cluster.hosts]
    draw = random.Random(0)  # noqa: S311  # no secret
    (_, first), *changes = trace.replayed()
    killed: dict[int, float] = {}
    with Testbed(cluster) as bed, hocket_job(bed, names[:first], members_max=len(names)) as job:
        here = {host_of_rank(job, process): process for process in job.steps()}
        began_s = time.monotonic()
        for at_s, count in changes:
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))
            for host in draw.sample(sorted(here), max(0, len(here) - count)):
                process = here.pop(host)
                os.kill(process, signal.SIGKILL)
                killed[process] = time.monotonic()
            for host in [name for name in names if name not in here][: max(0, count - len(here))]:
                here[host] = _joined(job, host)
        time.sleep(max(0.0, began_s + LASTS_S / FASTER - time.monotonic()))
        own, of_all = counted(job.steps(), killed)
    return own, of_all, len(killed)


def _joined(job: Job, host: str) -> int:
    """Add a rank; return its process."""
    job.join(host)
    return job.began[-1].pid

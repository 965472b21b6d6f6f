"""Rows of `python -m benches elastic`: cost of a change of ranks for the others."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from statistics import median, quantiles
from typing import NamedTuple

from benches.elastic.contenders import start_replica, torchelastic_job, torchft_job
from benches.elastic.goodput import goodput, goodput_of_torchft
from benches.elastic.jobs import (
    GIGABIT,
    WORLD,
    Job,
    any_rank,
    four_hosts,
    going_on_s,
    hocket_job,
    longest_pause_s,
    meeting_s,
    step_s,
)
from benches.elastic.light import light
from benches.elastic.machines import machines
from benches.elastic.rank import COPIES
from benches.elastic.reconfigure import reconfigured_s
from benches.elastic.silence import busy, host_killed
from benches.elastic.sites import lost_site
from benches.elastic.spot import spot
from benches.emulated import hosts
from benches.row import Row
from hocket.artefacts.cluster import Cluster, Host
from hocket.tools.testbed import Testbed

RANKS_OF_A_HOST = 8
KILLS, LEAVES, ENDS, RESTARTS = 30, 5, 5, 3
RAISES_S, GOES_ON_S = 0.1, {True: 0.35, False: 5.15}
"""Targets; the second by whether torchft is tuned, whose lighthouse gives a silent replica up after 0.2 or 5 s."""
TURNS, STEPS = 4, 40
STATE_BYTES, SMALL_STATE_BYTES, SLOW_BIT_PER_S = 1 << 30, 1 << 28, 2e8
LEAVE_MORE_S = 0.05
JOIN_OVER = 1.15
BITS = 8
LEAST_S = 0.01
"""Least duration of a change in ratios: shorter ones differ by chance."""


def _one_host(ranks: int) -> Cluster:
    return Cluster(hosts=(Host(name="h0", slots=ranks, bandwidth_bit_per_s=GIGABIT),))


def _slots(cluster: Cluster) -> list[str]:
    return [host.name for host in cluster.hosts for _ in range(host.slots or 1)]


def _ended(
    job: Job, number: int, draw: random.Random, since_s: float = 0.0, world: int = WORLD
) -> tuple[float, set[int]]:
    """Send a signal to the highest rank, somewhere in a step; return the time, and the other ranks' processes.

    `since_s`: time since which all present ranks have trained.
    """
    victim, others = any_rank(job, draw, since_s, world)
    os.kill(victim, number)
    return time.monotonic(), others


def _changes(name: str, cluster: Cluster, target_s: float, model: str = "transformer") -> list[Row]:
    """Measure kills, joins and notices in one job after the other, back at the same number of ranks each time."""
    slots = _slots(cluster)
    world = len(slots)
    killed_s, joined_s, met_s, left_s, usual_s = [], [], [], [], []
    began_s, draw = 0.0, random.Random(0)  # noqa: S311  # no secret
    with Testbed(cluster) as bed, hocket_job(bed, slots, model) as job:
        for turn in range(KILLS + LEAVES):
            kills = turn < KILLS
            at_s, others = _ended(job, signal.SIGKILL if kills else signal.SIGTERM, draw, began_s, world)
            later = job.settled(world - 1, since_s=at_s)
            if kills:
                killed_s.append(going_on_s(later, others.__contains__, at_s=at_s, world=world - 1))
            else:
                pause_s, own_s = longest_pause_s(later, others.__contains__, world - 1)
                left_s.append(pause_s)
            began_s = time.monotonic()
            job.join(slots[-1])
            later = job.settled(world, since_s=began_s)
            pause_s, own_s = longest_pause_s(later, others.__contains__, world)
            joined_s.append(pause_s)
            usual_s.append(own_s)
            met_s.append(meeting_s(later, others.__contains__, world) - own_s)
    return [
        Row.over(
            killed_s,
            name=name,
            what="a rank is killed: until all others have stepped, less a step",
            target=target_s,
            unit="s",
        ),
        Row(
            name=name,
            what=f"the same, the 95th percentile of {KILLS}",
            value=quantiles(killed_s, n=20, method="inclusive")[-1],
            target=2 * target_s,
            unit="s",
        ),
        Row.over(
            left_s,
            name=name,
            what="a rank leaves: longest time between steps, less a step",
            target=median(usual_s) + LEAVE_MORE_S,
            unit="s",
        ),
        Row.over(
            joined_s,
            name=name,
            what="a rank joins: longest time between steps, less a step",
            target=median(usual_s) + LEAVE_MORE_S,
            unit="s",
        ),
        Row.over(
            met_s,
            name=name,
            what="the same between the last step without it and the first with it: the meeting",
            target=median(usual_s) + LEAVE_MORE_S,
            unit="s",
        ),
        Row.over(usual_s, name=name, what="a step", unit="s"),
    ]


def star() -> list[Row]:
    """Rows of a rank on each of four hosts at 1 Gbit/s."""
    return _changes("star", four_hosts(), 0.3)


def small() -> list[Row]:
    """Rows of a small model, 1 MiB of mostly frozen parameters, on each of four hosts at 1 Gbit/s."""
    return _changes("small", four_hosts(), 0.3, str(2**20))


def one_host() -> list[Row]:
    """Rows of eight ranks on a host."""
    return _changes("one-host", _one_host(RANKS_OF_A_HOST), 0.1)


def coordinator() -> list[Row]:
    """Rows of a killed launcher whose successor is started at once; then a rank is killed, and another one joins."""
    slots = _slots(four_hosts())
    paused_s, killed_s, began_s, draw = [], [], 0.0, random.Random(0)  # noqa: S311  # no secret
    with Testbed(four_hosts()) as bed, hocket_job(bed, slots, journal=True) as job:
        for _ in range(ENDS):
            everybody = job.settled(WORLD, since_s=began_s)
            at_s = time.monotonic()
            job.replace_launcher(slots[0])
            later = job.settled(WORLD, since_s=at_s)
            paused_s.append(longest_pause_s(later, everybody.__contains__, WORLD)[0])
            at_s, others = _ended(job, signal.SIGKILL, draw, at_s)
            later = job.settled(WORLD - 1, since_s=at_s)
            killed_s.append(going_on_s(later, others.__contains__, at_s=at_s, world=WORLD - 1))
            began_s = time.monotonic()
            job.join(slots[-1])
    what = "the launcher is killed, another one goes on"
    return [
        Row.over(
            paused_s,
            name="coordinator",
            what=f"{what}: longest time between steps, less a step",
            target=0.3,
            unit="s",
        ),
        Row.over(
            killed_s,
            name="coordinator",
            what="then a rank is killed: until all others have stepped, less a step",
            target=0.3,
            unit="s",
        ),
    ]


def _against(
    row: str, name: str, least: float, job_of: Callable[..., AbstractContextManager[Job]], *, restarts: bool
) -> list[Row]:
    """Kill a rank in jobs of another system, in turns with Hocket. `restarts`: all processes start anew there."""
    ours_s: list[float] = []
    theirs_s: dict[str, list[float]] = {"tuned": [], "with its defaults": []}
    draw = random.Random(0)  # noqa: S311  # no secret
    for _ in range(RESTARTS):
        with Testbed(four_hosts()) as bed, hocket_job(bed, _slots(four_hosts())) as job:
            ours_s.append(_until_all_go_on_s(job, draw, restarts=False))
        for how, own_s in theirs_s.items():
            with Testbed(four_hosts()) as bed, job_of(bed, tuned=how == "tuned") as job:
                own_s.append(_until_all_go_on_s(job, draw, restarts=restarts))
    what = "a rank is killed: until all others have stepped, less a step"
    rows = [Row.over(ours_s, name=row, what=f"{what}: Hocket", unit="s")]
    for how, own_s in theirs_s.items():
        rows += [
            Row.over(own_s, name=row, what=f"{what}: {name} {how}", unit="s"),
            Row(
                name=row,
                what=f"{name} {how} over Hocket",
                value=median(own_s) / max(median(ours_s), LEAST_S),
                target=least,
                least=True,
                unit="times",
            ),
        ]
    return rows


def _until_all_go_on_s(job: Job, draw: random.Random, *, restarts: bool) -> float:
    at_s, others = _ended(job, signal.SIGKILL, draw)
    world = WORLD if restarts else WORLD - 1
    later = job.settled(world, since_s=at_s)
    going_on = {process for process, own in later.items() if own[0].at_s > at_s} if restarts else others
    return going_on_s(later, going_on.__contains__, at_s=at_s, world=world)


def torchelastic() -> list[Row]:
    """Rows of a killed rank under torchrun. All processes start anew, and continue from the last step."""
    return _against("torchelastic", "TorchElastic", 10, torchelastic_job, restarts=True)


def torchft() -> list[Row]:
    """Rows of a killed replica under torchft. The others continue, and may lose the step."""
    return _against("torchft", "torchft", 3, torchft_job, restarts=False)


def torchft_backend() -> list[Row]:
    """Rows of killed replicas under torchft's Manager, on backend `hocket` and on Gloo in turns; each replica comes back.

    Gloo with torchft's defaults is left out: its collectives raise after a minute, when the quorum's time-out has ended others.
    """
    contenders = (("hocket", True), ("gloo", True), ("hocket", False))
    found: dict[tuple[str, bool], tuple[list[float], list[float]]] = {each: ([], []) for each in contenders}
    draw = random.Random(0)  # noqa: S311  # no secret
    for _ in range(RESTARTS):
        for (backend, tuned), (raised_s, going_s) in found.items():
            with Testbed(four_hosts()) as bed, torchft_job(bed, tuned=tuned, backend=backend) as job:
                began_s = 0.0
                for _ in range(KILLS // RESTARTS):
                    at_s, others = _ended(job, signal.SIGKILL, draw, began_s)
                    later = job.settled(WORLD - 1, since_s=at_s)
                    going_s.append(going_on_s(later, others.__contains__, at_s=at_s, world=WORLD - 1))
                    # A replica between two collectives learns of the death from the lighthouse.
                    if errors_s := job.errors_s(at_s):
                        raised_s.append(max(errors_s) - at_s)
                    began_s = time.monotonic()
                    start_replica(job, job.host_of_lost(others))
    rows = []
    for (backend, tuned), (raised_s, going_s) in found.items():
        how = f"{backend}, torchft {'tuned' if tuned else 'with its defaults'}"
        raise_max_s, go_max_s = (RAISES_S, GOES_ON_S[tuned]) if backend == "hocket" else (None, None)
        rows += [
            Row.over(
                raised_s,
                name="torchft-backend",
                what=f"a replica is killed: until the others' collective raises, {how}",
                target=raise_max_s,
                unit="s",
            ),
            Row.over(
                going_s,
                name="torchft-backend",
                what=f"until all others have stepped, less a step, {how}",
                target=go_max_s,
                unit="s",
            ),
        ]
    return rows


def reconfigured() -> list[Row]:
    """Rows of PyTorch's `reconfigure` of ranks of one host, on backend `hocket` and on Gloo in turns."""
    rows = []
    for world in (4, 16):
        took_s: dict[str, list[float]] = {"hocket": [], "gloo": []}
        for _ in range(RESTARTS):
            for backend, own_s in took_s.items():
                own_s.extend(reconfigured_s(backend, world))
        for backend, own_s in took_s.items():
            target = median(took_s["gloo"]) if backend == "hocket" else None
            what = f"reconfigure of {world} ranks, slowest rank, {backend}"
            rows.append(Row.over(own_s, name="reconfigure", what=what, target=target, unit="s"))
    return rows


def _steps_s(cluster: Cluster, *, elastic: bool) -> float:
    slots = _slots(cluster)
    with Testbed(cluster) as bed, hocket_job(bed, slots, elastic=elastic) as job:
        began_s = time.monotonic()
        while min(map(len, job.steps().values())) < STEPS:
            job.settled(len(slots), since_s=began_s)
            time.sleep(1)
        return step_s([own[STEPS // 2 :] for own in job.steps().values()])


def _nothing(name: str, cluster: Cluster, target: float) -> Row:
    ratios = []
    for _ in range(TURNS):
        plain_s, elastic_s = (_steps_s(cluster, elastic=elastic) for elastic in (False, True))
        ratios.append(elastic_s / plain_s)
    return Row.over(
        ratios,
        name="nothing-fails",
        what=f"step of an elastic job over one that is not, {name}",
        target=target,
        unit="times",
    )


def nothing_fails() -> list[Row]:
    return [
        _nothing("four hosts", four_hosts(), 1.03),
        _nothing("four ranks on a host", _one_host(WORLD), 1.10),
    ]


class _Joined(NamedTuple):
    """Seconds when a rank joins: a step before, the median step meanwhile, the longest one, the one that ends with it among the
    ranks, and until it has made its first one."""

    step_s: float
    meanwhile_s: float
    longest_s: float
    met_s: float
    until_s: float


def _joined(rates: Sequence[float], founders: int, model: str) -> _Joined:
    """Let a rank join on the last host."""
    cluster = hosts(list(rates))
    slots = _slots(cluster)
    with (
        Testbed(cluster) as bed,
        hocket_job(bed, slots[:founders], model, members_max=len(slots)) as job,
    ):
        usual_s = step_s(list(job.steps().values()))
        began_s = time.monotonic()
        job.join(slots[-1])
        later = job.settled(founders + 1, since_s=began_s)
        own = [steps for steps in later.values() if steps[0].world == founders]
        newcomer = next(steps for steps in later.values() if steps[0].world > founders)
        alone = [[each for each in steps if each.world == founders] for steps in own]
        longest_s = max(b.at_s - a.at_s for steps in own for a, b in pairwise(steps))
        met_s = meeting_s(later, lambda process: later[process][0].world == founders, founders + 1)
        return _Joined(usual_s, step_s(alone), longest_s, met_s, newcomer[0].at_s - began_s)


def state() -> list[Row]:
    """Rows of 1 GiB of state over links of 1 Gbit/s: parameters that no step changes, and trained ones with AdamW's state."""
    rows = []
    for what, model in (("frozen", str(STATE_BYTES)), ("trained by AdamW", f"trained-{STATE_BYTES}")):
        joined = _joined([GIGABIT] * WORLD, WORLD - 1, model)
        gradient_bytes = STATE_BYTES / COPIES if "AdamW" in what else 0.0
        left_bit_per_s = GIGABIT - gradient_bytes * BITS / joined.meanwhile_s
        name = f"a rank joins with 1 GiB of state, {what}"
        rows += [
            Row(
                name="state",
                what=f"{name}: longest time between steps, less a step",
                value=joined.longest_s - joined.step_s,
                target=LEAVE_MORE_S,
                unit="s",
            ),
            Row(
                name="state",
                what=f"{name}: the same of the step with which it is there",
                value=joined.met_s - joined.step_s,
                target=LEAVE_MORE_S,
                unit="s",
            ),
            Row(name="state", what=f"{name}: a step before", value=joined.step_s, unit="s"),
            Row(name="state", what=f"{name}: a step meanwhile", value=joined.meanwhile_s, unit="s"),
            Row(
                name="state",
                what=f"{name}: until its first step, over the time on the link beside gradients",
                value=joined.until_s / (STATE_BYTES * BITS / left_bit_per_s),
                target=JOIN_OVER,
                unit="times",
            ),
        ]
    return rows


def sources() -> list[Row]:
    """Rows of 256 MiB of state from hosts of 200 Mbit/s to one of 1 Gbit/s."""
    one_s, three_s = (
        _joined([*[SLOW_BIT_PER_S] * count, GIGABIT], count, str(SMALL_STATE_BYTES)).until_s
        for count in (1, 3)
    )
    return [
        Row(
            name="sources",
            what="a rank joins one on a slow link: until its first step",
            value=one_s,
            unit="s",
        ),
        Row(
            name="sources",
            what="the same over the time when it joins three",
            value=one_s / three_s,
            target=2.5,
            least=True,
            unit="times",
        ),
    ]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "star": star,
    "small": small,
    "one-host": one_host,
    "torchelastic": torchelastic,
    "torchft": torchft,
    "torchft-backend": torchft_backend,
    "reconfigure": reconfigured,
    "host-killed": host_killed,
    "busy": busy,
    "coordinator": coordinator,
    "light": light,
    "machines": machines,
    "nothing-fails": nothing_fails,
    "state": state,
    "sources": sources,
    "sites": lost_site,
    "goodput": goodput,
    "spot": spot,
    "goodput-torchft": goodput_of_torchft,
}

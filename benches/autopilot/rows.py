"""Rows of `python -m benches autopilot`: emulated clusters, contenders in turns, medians of steps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benches.autopilot.jobs import Trained, by_verbs, train, train_on
from benches.emulated import hosts
from benches.row import Row
from hocket.artefacts.cluster import Cluster
from hocket.tools.report.quantity import TIMES
from hocket.tools.testbed import Testbed

GIGABIT, MEGABIT = 1e9, 1e6
TURNS = 2
"""Turns of each contender; the medians count."""

RACKS = hosts([GIGABIT] * 4, 2, 100 * MEGABIT, alternating=True)
STAR = hosts([GIGABIT] * 4)


def _turns(jobs: dict[str, Callable[[], Trained]], turns: int = TURNS) -> dict[str, float]:
    """Seconds of a step at the end of each job."""
    found: dict[str, list[Trained]] = {name: [] for name in jobs}
    for _ in range(turns):
        for name, job in jobs.items():
            found[name].append(job())
    return {name: median(each.last_s for each in trained) for name, trained in found.items()}


def _against_gloo(
    cluster: Cluster,
    model: str,
    steps: int,
    gloo_steps: int,
    *,
    ours: str = "hocket",
    turns: int = TURNS,
    **how: Any,
) -> dict[str, float]:
    """Seconds of a step with Hocket and with Gloo. `how`: see `train_on`."""
    return _turns(
        {
            "hocket": lambda: train(cluster, ours, model, steps, **how),
            "gloo": lambda: train(cluster, "gloo", model, gloo_steps, **how),
        },
        turns,
    )


def _over_ddp(name: str, where: str, target: float, found: dict[str, float]) -> Row:
    what, value = f"{where}: Hocket's step over DDP's", found["hocket"] / found["gloo"]
    return Row(name=name, what=what, value=value, target=target, unit=TIMES)


def _gain(name: str, what: str, least: float, found: dict[str, float]) -> Row:
    value = found["gloo"] / found["hocket"]
    what = f"{what}: Gloo's step over Hocket's"
    return Row(name=name, what=what, value=value, target=least, least=True, unit=TIMES)


def racks() -> Iterator[Row]:
    """Rows of two racks with alternating hosts, without a cluster file: 60 steps, the last 20 count."""
    yield _gain("racks", "two lines", 2.9, _against_gloo(RACKS, "transformer", 60, 12))


def rounded() -> Iterator[Row]:
    """Rows of two racks with the promise `rounded`."""
    found = _against_gloo(RACKS, "transformer", 60, 12, promise="rounded")
    yield _gain("rounded", "two lines, rounded", 5.3, found)


def torchrun() -> Iterator[Row]:
    """Rows of two racks under torchrun, with equal host names."""
    found = _against_gloo(RACKS, "transformer", 50, 12, turns=1, torchrun=True)
    yield _gain("torchrun", "two lines under torchrun, equal host names", 2.9, found)


def by_hand() -> Iterator[Row]:
    """Rows against the plan from `probe`, `profile` and `plan`."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder, Testbed(RACKS) as bed:
        plan = by_verbs(bed, "transformer", Path(folder))
        found = _turns(
            {
                "alone": lambda: train_on(bed, "hocket", "transformer", 50),
                "by hand": lambda: train_on(bed, "hocket", "transformer", 25, plan=plan),
            }
        )
    yield Row(
        name="by-hand",
        what="two lines: step over that of the plan made with the verbs",
        value=found["alone"] / found["by hand"],
        target=1.05,
        unit=TIMES,
    )


def first_plan() -> Iterator[Row]:
    """Rows of a job that begins blind, without a look at its network."""
    blind = train(RACKS, "blind", "transformer", 40, traced=True)
    adopted = next((each.step for each in blind.changes if each.what == "adopted"), len(blind.steps_s))
    yield Row(
        name="first-plan",
        what="begins blind: steps until the better plan is in force",
        value=adopted,
        target=20,
    )


def total() -> Iterator[Row]:
    """Rows of 100 steps against 100 at the final pace."""
    found = train(RACKS, "hocket", "transformer", 100)
    yield Row(
        name="total",
        what="100 steps over 100 of those with the finished plan",
        value=sum(found.steps_s) / (100 * found.last_s),
        target=1.25,
        unit=TIMES,
    )


def second_job() -> Iterator[Row]:
    """Rows of a second job on the same hosts."""
    # One testbed: another one's hosts have other hardware addresses, and count as other hosts.
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as cache, Testbed(RACKS) as bed:
        first = train_on(bed, "blind", "transformer", 40, cache=cache)
        second = train_on(bed, "blind", "transformer", 25, cache=cache)
    slow = [at for at, step_s in enumerate(second.steps_s) if step_s > 1.1 * first.last_s]
    settled = next(
        (at for at in range(len(second.steps_s)) if not any(at <= each < at + 5 for each in slow)), 25
    )
    yield Row(
        name="second-job",
        what="second job on the same hosts: steps until five in a row are as short as the first job's last",
        value=settled,
        target=5,
    )


def tiny() -> Iterator[Row]:
    """Rows of a model of two layers of 64 by 64."""
    yield _over_ddp("tiny", "64 by 64", 0.9, _against_gloo(STAR, "tiny", 1000, 1000))


def star() -> Iterator[Row]:
    """Rows of four hosts at one switch."""
    yield _over_ddp("star", "star of four at 1 Gbit/s", 1.0, _against_gloo(STAR, "transformer", 40, 30))


def one_host() -> Iterator[Row]:
    """Rows of one host, on which there is nothing to drive."""
    for count in (2, 4):
        slots = ["h0"] * count
        found = _against_gloo(hosts([GIGABIT]), "transformer", 30, 30, slots=slots)
        yield _over_ddp("one-host", f"one host, {count} ranks", 1.0, found)


def trunk() -> Iterator[Row]:
    """Rows of a trunk that is halved in training, and restored."""
    halved, restored, steps = 25, 55, 85
    weather = ((halved, 50 * MEGABIT), (restored, 100 * MEGABIT))
    found = train(RACKS, "hocket", "transformer", steps, weather=weather, traced=True)
    for what, change in (("halved", halved), ("restored", restored)):
        after = (each.step - change for each in found.changes if each.what in ("planned", "adopted"))
        yield Row(
            name="trunk",
            what=f"trunk {what}: iterations until planned again",
            value=min((each for each in after if each > 0), default=steps),
            target=30,
        )
    slow = hosts([GIGABIT] * 4, 2, 50 * MEGABIT, alternating=True)
    fixed = train(slow, "hocket", "transformer", 20)
    yield Row(
        name="trunk",
        what="trunk halved, after settling: step over the best fixed plan's",
        value=median(found.steps_s[restored - 12 : restored - 2]) / fixed.last_s,
        target=1.1,
        unit=TIMES,
    )


def wrong_plan() -> Iterator[Row]:
    """Rows of a slow plan with a fast prediction."""
    found = train(RACKS, "liar", "transformer", 45, traced=True)
    adopted = next(each.step for each in found.changes if each.what == "adopted")
    left = next((each.step for each in found.changes if each.what == "left"), len(found.steps_s))
    yield Row(name="wrong-plan", what="a wrong plan: steps until it is left", value=left - adopted, target=15)


def backend() -> Iterator[Row]:
    """Rows of DDP's own step, with Hocket as its backend."""
    found = _against_gloo(RACKS, "transformer", 14, 14, ours="backend")
    yield _gain("backend", "DDP on two racks", 2.5, found)
    yield _over_ddp(
        "backend", "DDP on a star", 1.0, _against_gloo(STAR, "transformer", 30, 30, ours="backend")
    )


def probing() -> Iterator[Row]:
    """Rows of the cost of looks beside training: consecutive ones, at the rate that their budget allows, with the same plan."""
    found = _turns(
        {
            "looks": lambda: train(STAR, "looker", "transformer", 80),
            "none": lambda: train(STAR, "hocket", "transformer", 80, autopilot=False),
        },
        turns=4,
    )
    yield Row(
        name="probing",
        what="looking all the time: step over one without the autopilot",
        value=found["looks"] / found["none"],
        target=1.01,
        unit=TIMES,
    )


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "racks": racks,
    "rounded": rounded,
    "torchrun": torchrun,
    "by-hand": by_hand,
    "first-plan": first_plan,
    "total": total,
    "second-job": second_job,
    "tiny": tiny,
    "star": star,
    "one-host": one_host,
    "trunk": trunk,
    "wrong-plan": wrong_plan,
    "probing": probing,
    "backend": backend,
}

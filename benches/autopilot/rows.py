"""The rows of `python -m benches autopilot`: emulated clusters, contenders in turns, medians of steps."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from benches.emulated import TIMEOUT_S, hosts
from hocket.artefacts import trace
from hocket.artefacts.change import Change
from hocket.artefacts.cluster import Cluster
from hocket.demo.catalogue import WARM_UP_STEPS
from hocket.demo.emulation import NamespaceEmulation, ranks, run_ranks
from hocket.launch.testbed import Testbed
from hocket.report.quantity import TIMES
from hocket.settings import Settings

GIGABIT, MEGABIT = 1e9, 1e6
TURNS = 2
"""How often each contender trains; the medians of its turns count."""
LAST = 15
"""Steps at the end of which the median counts."""
POLL_S = 0.05

RACKS = hosts([GIGABIT] * 4, 2, 100 * MEGABIT, alternating=True)
STAR = hosts([GIGABIT] * 4)


class Row(Struct, frozen=True, kw_only=True):
    """One number. `value` is to be at most `target`, or with `least` at least."""

    name: str
    what: str
    value: float
    target: float | None = None
    least: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the target is; True without one."""
        if self.target is None:
            return True
        return self.value >= self.target if self.least else self.value <= self.target


class Trained(Struct, frozen=True, kw_only=True):
    """One training: each step's seconds, and what the job changed by itself."""

    steps_s: tuple[float, ...]
    changes: tuple[Change, ...] = ()

    @property
    def last_s(self) -> float:
        """Median of the last steps, of which the first ones are none."""
        return median(self.steps_s[WARM_UP_STEPS:][-LAST:])


Weather = Sequence[tuple[int, float]]
"""After so many steps, the rate of all trunks in bit/s."""


def train(cluster: Cluster, contender: str, model: str, steps: int, **how: Any) -> Trained:
    """One job on a testbed of its own; `how` as `train_on`. PeerError: a rank failed; TestbedError: no namespaces."""
    with Testbed(cluster) as bed:
        return train_on(bed, contender, model, steps, **how)


def train_on(
    bed: Testbed,
    contender: str,
    model: str,
    steps: int,
    *,
    slots: Sequence[str] | None = None,
    weather: Weather = (),
    autopilot: bool = True,
    promise: str | None = None,
    cache: str | None = None,
    traced: bool = False,
) -> Trained:
    """One job of `contender`. `traced`: with what it changed, which costs it a trace."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        out = Path(folder) / "steps.json"
        emulation = NamespaceEmulation(bed)
        argv = [sys.executable, "-m", "benches.autopilot.rank", contender, model, str(steps), str(out)]
        settings = Settings(
            timeout_s=TIMEOUT_S,
            start_timeout_s=TIMEOUT_S,
            autopilot=autopilot,
            promise=promise,
            trace=folder if traced else None,
            cache=cache or folder,
        )
        places = slots or [host.name for host in bed.cluster.hosts]
        with _changing(bed, out.with_suffix(".steps"), weather):
            run_ranks(emulation, places[0], ranks(emulation, places, argv), settings)
        changes = trace.read(Path(folder)).changes() if traced else ()
        return Trained(steps_s=tuple(json.loads(out.read_text())), changes=changes)


@contextmanager
def _changing(bed: Testbed, counter: Path, weather: Weather) -> Iterator[None]:
    """Sets the trunks' rates when the job has trained so many steps."""
    ended = threading.Event()

    def watch() -> None:
        coming = list(weather)
        while coming and not ended.wait(POLL_S):
            text = counter.read_text() if counter.exists() else ""
            if text and int(text) >= coming[0][0]:
                _, rate = coming.pop(0)
                for rack in bed.cluster.racks:
                    bed.set_trunk(rack.name, rate)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _turns(jobs: dict[str, Callable[[], Trained]]) -> dict[str, list[Trained]]:
    found: dict[str, list[Trained]] = {name: [] for name in jobs}
    for _ in range(TURNS):
        for name, job in jobs.items():
            found[name].append(job())
    return found


def _against_gloo(
    cluster: Cluster,
    model: str,
    steps: int,
    gloo_steps: int,
    *,
    slots: Sequence[str] | None = None,
    ours: str = "hocket",
) -> dict[str, float]:
    """Seconds of a step with each."""
    found = _turns(
        {
            "hocket": lambda: train(cluster, ours, model, steps, slots=slots),
            "gloo": lambda: train(cluster, "gloo", model, gloo_steps, slots=slots),
        }
    )
    return {contender: median(each.last_s for each in trained) for contender, trained in found.items()}


def _over_ddp(name: str, where: str, target: float, found: dict[str, float]) -> Row:
    what, value = f"{where}: Hocket's step over DDP's", found["hocket"] / found["gloo"]
    return Row(name=name, what=what, value=value, target=target, unit=TIMES)


def racks() -> Iterator[Row]:
    """Two racks whose hosts alternate."""
    found = _against_gloo(RACKS, "transformer", 35, 14)
    yield Row(
        name="racks",
        what="two lines: DDP's step over Hocket's",
        value=found["gloo"] / found["hocket"],
        target=2.9,
        least=True,
        unit=TIMES,
    )


def rounded() -> Iterator[Row]:
    """The same with the promise `rounded`."""
    ours = train(RACKS, "hocket", "transformer", 30, promise="rounded")
    theirs = train(RACKS, "gloo", "transformer", 15)
    yield Row(
        name="rounded",
        what="two lines, rounded: DDP's step over Hocket's",
        value=theirs.last_s / ours.last_s,
        target=5.3,
        least=True,
        unit=TIMES,
    )


def first_plan() -> Iterator[Row]:
    """A job that begins blind: nobody has looked at its network."""
    blind = train(RACKS, "blind", "transformer", 40, traced=True)
    adopted = next((each.step for each in blind.changes if each.what == "adopted"), len(blind.steps_s))
    yield Row(
        name="first-plan",
        what="begins blind: steps until the better plan is in force",
        value=adopted,
        target=20,
    )


def total() -> Iterator[Row]:
    """All of 100 steps against 100 at the pace of the end."""
    found = train(RACKS, "hocket", "transformer", 100)
    yield Row(
        name="total",
        what="100 steps over 100 of those with the finished plan",
        value=sum(found.steps_s) / (100 * found.last_s),
        target=1.25,
        unit=TIMES,
    )


def second_job() -> Iterator[Row]:
    """A second job on the same hosts."""
    # On one testbed: hosts of another one have other hardware addresses, and are other hosts.
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
    """A model of two layers of 64 by 64."""
    yield _over_ddp("tiny", "64 by 64", 0.9, _against_gloo(STAR, "tiny", 1000, 1000))


def star() -> Iterator[Row]:
    """Four hosts at one switch."""
    yield _over_ddp("star", "star of four at 1 Gbit/s", 1.0, _against_gloo(STAR, "transformer", 40, 30))


def one_host() -> Iterator[Row]:
    """Ranks of one host, for which there is nothing to drive."""
    for count in (2, 4):
        slots = ["h0"] * count
        found = _against_gloo(hosts([GIGABIT]), "transformer", 30, 30, slots=slots)
        yield _over_ddp("one-host", f"one host, {count} ranks", 1.0, found)


def trunk() -> Iterator[Row]:
    """A trunk that is halved in training, and restored."""
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
    """A plan that is promised to be fast, and is not."""
    found = train(RACKS, "liar", "transformer", 45, traced=True)
    adopted = next(each.step for each in found.changes if each.what == "adopted")
    left = next((each.step for each in found.changes if each.what == "left"), len(found.steps_s))
    yield Row(name="wrong-plan", what="a wrong plan: steps until it is left", value=left - adopted, target=15)


def backend() -> Iterator[Row]:
    """DDP's own step, with Hocket as its backend."""
    found = _against_gloo(RACKS, "transformer", 14, 14, ours="backend")
    yield Row(
        name="backend",
        what="DDP on two racks: Gloo's step over Hocket's",
        value=found["gloo"] / found["hocket"],
        target=2.5,
        least=True,
        unit=TIMES,
    )
    yield _over_ddp(
        "backend", "DDP on a star", 1.0, _against_gloo(STAR, "transformer", 30, 30, ours="backend")
    )


def probing() -> Iterator[Row]:
    """What the autopilot costs while it watches."""
    found = _turns(
        {
            "on": lambda: train(STAR, "hocket", "transformer", 40),
            "off": lambda: train(STAR, "hocket", "transformer", 40, autopilot=False),
        }
    )
    on, off = (median(each.last_s for each in found[name]) for name in ("on", "off"))
    yield Row(
        name="probing",
        what="with the autopilot over without",
        value=on / off,
        target=1.01,
        unit=TIMES,
    )


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "racks": racks,
    "rounded": rounded,
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

"""The demo's transformer on two racks, planned from measurements, under successively weaker promises."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from benches.autopilot.jobs import measured
from benches.autopilot.rows import RACKS
from benches.row import Row
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.planning import delays, search
from hocket.tools.demo import training
from hocket.tools.demo.emulation import NamespaceEmulation
from hocket.tools.demo.training import Trained, Training
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation import shortlist
from hocket.tools.testbed import Testbed

PROMISES = {
    "rounded": Promise("rounded"),
    "merged": Promise("merged", merge=2),
    "delayed": Promise("delayed", merge=2, delay=1),
}

STEPS, LAST = 80, 48
"""Steps of each training, and last steps whose mean counts, which are whole periods."""

ALIKE = 1.02
"""Ratio to the step of the level before: if a promise gains nothing, the planner ignores it, and only noise is left."""

SMOOTHED = 8
"""Number of losses, of a batch of one window each, that are averaged."""


def joint() -> Iterator[Row]:
    """Step of each level, over the prediction and over the level before; and time to the last loss of `rounded`."""
    found: dict[str, tuple[Plan, Trained]] = {}
    with Testbed(RACKS) as bed, tempfile.TemporaryDirectory(prefix="hocket-delays-") as directory:
        folder = Path(directory)
        cluster, profile = measured(bed, "transformer", folder)
        files.write(folder / "cluster.toml", cluster)
        for level, promise in PROMISES.items():
            considered = search.considered(cluster, profile, len(cluster.hosts), promise=promise)
            plain = shortlist.chosen(considered, cluster, profile)
            plan = delays.scheduled(plain, considered.question.graph, profile, promise, "sqrt")
            files.write(folder / f"{level}.json", plan)
            wanted = Training(
                strategy="hocket",
                model="transformer",
                steps=STEPS,
                plan=folder / f"{level}.json",
                cluster=folder / "cluster.toml",
            )
            trained = training.train(NamespaceEmulation(bed), wanted, folder / level, lambda _: None)
            found[level] = plan, trained
    yield from _rows(found)


def _rows(found: dict[str, tuple[Plan, Trained]]) -> Iterator[Row]:
    target = _smoothed(found["rounded"][1])[-1]
    before_s = None
    for level, (plan, trained) in found.items():
        times_s = trained.ranks[0].times_s
        step_s = (times_s[-1] - times_s[-1 - LAST]) / LAST
        what = f"{level} ({plan.label}): step"
        yield Row(name="joint", what=what, value=step_s * 1e3, unit="ms")
        error = abs(step_s / plan.predicted_step_s - 1)
        yield Row(name="joint", what=f"{level}: error of its prediction", value=error, target=0.1)
        if before_s is not None:
            what = f"{level}: step over that of the level before"
            yield Row(name="joint", what=what, value=step_s / before_s, target=ALIKE, unit=TIMES)
        before_s = step_s
        reached = next((at for at, loss in enumerate(_smoothed(trained)) if loss <= target), None)
        if reached is not None:
            what = f"{level}: time to a loss of {target:.3g}"
            yield Row(name="joint", what=what, value=times_s[reached], unit="s")


def _smoothed(trained: Trained) -> Sequence[float]:
    """Mean losses over ranks and the last steps."""
    losses = [fmean(each) for each in zip(*(rank.losses for rank in trained.ranks), strict=True)]
    return [fmean(losses[max(0, at - SMOOTHED + 1) : at + 1]) for at in range(len(losses))]

"""`in-training`: a search in real training on two racks, against the best builder's plan for as many steps, and against DDP."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch

from benches.autopilot.jobs import measured, train_on
from benches.row import Row
from benches.strategies.cases import CLUSTERS, builders
from hocket.artefacts import files
from hocket.planning.search import considered
from hocket.tools.analysis.searches import searches
from hocket.tools.report.quantity import TIMES
from hocket.tools.testbed import Testbed

MODEL = "transformer"
STEPS, TRIED = 300, 20
"""Steps of the search, and least number of trials in them."""
BEFORE = 30
"""Steps in which the job profiles itself, and makes its first plan."""
BUILT, GLOO = 14, 22
"""Steps with each builder's plan, the first of which do not count, and steps with DDP."""
NAME = "in-training"


def searched() -> Iterator[Row]:
    """Rows of one search of 300 steps."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder, Testbed(CLUSTERS["racks"]) as bed:
        cluster, profile = measured(bed, MODEL, Path(folder))
        plans = builders(cluster, profile, considered(cluster, profile, len(cluster.hosts)))
        built_s = {}
        for name, plan in plans.items():
            path = Path(folder) / f"{name}.json"
            files.write(path, plan)
            built_s[name] = train_on(bed, "hocket", MODEL, BUILT, plan=path).last_s
        best = min(built_s, key=lambda name: built_s[name])
        ours, theirs = Path(folder) / "ours.pt", Path(folder) / "theirs.pt"
        job = train_on(bed, "hocket", MODEL, BEFORE + STEPS, search="2h", traced=True, compared=ours)
        train_on(bed, "gloo", MODEL, GLOO, compared=theirs)
        pairs = zip(torch.load(ours), torch.load(theirs), strict=True)
        far = max(float((a - b).abs().max()) for a, b in pairs)
    (search,) = searches(job.changes)
    # The search may go on: its first 300 steps count.
    trials = [trial for trial in search.trials if trial.step <= search.began + STEPS]
    steps_s = job.steps_s[search.began : search.began + STEPS]
    ended = f"; it ended: {search.ended}" if search.ended else ""
    yield Row(
        name=NAME, what=f"plans on trial in {STEPS} steps{ended}", value=len(trials), target=TRIED, least=True
    )
    yield Row(
        name=NAME,
        what=f"time of these steps over that of the best builder's ({best}) for as many",
        value=sum(steps_s) / (len(steps_s) * built_s[best]),
        target=1.05,
        unit=TIMES,
    )
    yield Row(
        name=NAME,
        what="last steps over the shortest of all trials",
        value=median(job.steps_s[-10:]) / min(trial.measured_s for trial in trials),
        target=1.02,
        unit=TIMES,
    )
    yield Row(name=NAME, what="largest difference from DDP's parameters", value=far, target=1e-5)
    if search.hits is not None:
        yield Row(name=NAME, what="trials faster than the first plan", value=100 * search.hits, unit="%")
    yield Row(
        name=NAME,
        what="best builder's step over the one that is kept",
        value=built_s[best] / median(job.steps_s[-10:]),
        unit=TIMES,
    )

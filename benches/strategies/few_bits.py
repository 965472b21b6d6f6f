"""`few-bits`: four hosts at 100 Mbit/s, and plans in fewer bits: f16 on links, and the codecs that `hocket plan` proposes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benches.emulated import hosts
from benches.predict.measure import steps
from benches.row import Row
from benches.strategies.cases import MEGABIT, MODELS
from hocket.artefacts.promise import Promise
from hocket.planning.asked import asked_for
from hocket.planning.built import built
from hocket.planning.search import considered
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation.coded import WORTH

CLUSTER = hosts([100 * MEGABIT] * 4)
TURNS, STEPS = 2, 3
NAME = "few-bits"


def measured() -> Iterator[Row]:
    """Compare steps of the plan without a codec of few bits and of one with each, in turns, and with their predictions."""
    profile = MODELS["even"]
    found = considered(CLUSTER, profile, len(CLUSTER.hosts), promise=Promise("lossy"))
    coded = built(found.question, [asked_for(f"coded,codec={codec}") for codec in WORTH])
    plans = {"f16": found.best, **dict(zip(WORTH, (plan for _, plan in coded), strict=True))}
    times = steps(CLUSTER, [*plans.values()] * TURNS, profile, STEPS)
    steps_s = {
        name: statistics.median(step_s for turn in times[at :: len(plans)] for step_s in turn)
        for at, name in enumerate(plans)
    }
    for name, target in (("int8", 1.7), ("int4", 2.8)):
        yield Row(
            name=NAME,
            what=f"step with f16 on links over that by {name}",
            value=steps_s["f16"] / steps_s[name],
            target=target,
            least=True,
            unit=TIMES,
        )
    for name, plan in plans.items():
        yield Row(name=NAME, what=f"step by {name}", value=steps_s[name] * 1e3, unit="ms")
        yield Row(
            name=NAME,
            what=f"step by {name} over its prediction",
            value=steps_s[name] / plan.predicted_step_s,
            unit=TIMES,
        )

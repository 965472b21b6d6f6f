"""Row `sweep-alone` of `python -m benches delays`: the planner's choice of steps alone against all that a promise allows.

The planner compares by its closed form, and checks its choice by the flow engine. Here each choice runs message by message, on the
sites of the row `sites`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from benches.delays.sites import CASES, RANKS, SITES, SMALL, network
from benches.row import Row
from hocket.artefacts.local import Local, localized
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.planning import alone, search
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation import shortlist

PROMISES = (
    Promise("local", local=60),
    Promise("local", local=500, delay=8),
    Promise("local", local=20, delay=4, loss="any"),
)

WITHIN = 1.1
"""Target: an iteration of the choice, over the shortest of the sweep."""


def rows(promises: tuple[Promise, ...] = PROMISES) -> Iterator[Row]:
    """A row for each promise."""
    cluster, profile = network(), CASES[SMALL].profile()
    simulated_s = shortlist.alone_on(cluster, SITES * RANKS, profile)
    assert simulated_s is not None  # noqa: S101  # there are few ranks
    for promise in promises:
        considered = search.considered(cluster, profile, SITES * RANKS, promise=promise)
        best = considered.explained(considered.best)
        graph = considered.question.graph
        chosen = alone.instead_of(best, best, graph, profile, promise, simulated_s=simulated_s)
        own_s = simulated_s(chosen)
        found = {each.label: simulated_s(each) for each in swept(best, promise)}
        label = min(found, key=found.__getitem__)
        yield Row(
            name="sweep-alone",
            what=f"{promise}: simulated iteration of the choice ({chosen.label}), over the shortest of {len(found)} ({label})",
            value=own_s / found[label],
            target=WITHIN,
            unit=TIMES,
        )


def swept(plan: Plan, promise: Promise) -> Iterator[Plan]:
    """Yield plans that the promise allows: steps alone in factors of two, by lateness, fragments and codec."""
    most, late_most = promise.local or 1, promise.delay or 0
    lates = sorted({0, late_most // 2, late_most})
    codecs = ["", *(alone.CODECS if promise.loss == "any" else ())]
    steps = sorted({most >> power for power in range(most.bit_length() - 1)})
    for codec, number, late, fragments in itertools.product(codecs, steps, lates, (1, 4)):
        if late < number and fragments <= min(number, len(plan.buckets)):
            yield localized(alone.coded(plan, codec), Local(every=number, late=late, fragments=fragments))

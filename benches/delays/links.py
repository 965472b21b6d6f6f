"""Row `links` of `python -m benches delays`: hosts with a card of 330 and one of 200 Mbit/s, in the ratio of DeFT's links.

Gradients take 1.9 times as long as computation on the faster card alone. It compares late and merged gradients on this card,
striped over both, and with each bucket on the card that the packing gives it; computation is a wait, executors and links are real.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from benches.delays import cases
from benches.emulated import in_emulation
from benches.row import Row
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.network import GOODPUT
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT, Promise
from hocket.planning import delays, search, ways
from hocket.planning.cost import predict_on
from hocket.planning.for_job import updates_per_step

CARDS_BIT_PER_S = (330e6, 200e6)
COVERAGE = 1.9
PROMISE = Promise("delayed", merge=4, delay=2)

BOTH_MIN, ONE_MIN, REGRET_MAX = 0.75, 0.5, 0.05
"""Least updates per iteration on both cards, and on one; and the largest loss of updates against the best way."""

EQUAL_MAX = 1.05
"""Ratio to its computation that an iteration may last."""


class Way(NamedTuple):
    """Predicted and measured seconds of an iteration, and updates per iteration."""

    predicted_s: float
    measured_s: float
    updates: float

    @property
    def updates_per_s(self) -> float:
        """Measured updates per second."""
        return self.updates / self.measured_s


def rows() -> Iterator[Row]:
    """Iteration and updates of each way, and the planner's regret. PeerError if there are no network namespaces."""
    cluster, profile = hosts(), model()
    computed_s = profile.forward_s + profile.backward_s
    found: dict[str, Way] = {}
    considered = search.considered(cluster, profile, cases.WORLD, promise=EXACT)
    graph = considered.question.graph
    plain = considered.explained(considered.best)
    named = dict(
        zip(("both, striped", "one", "both, assigned"), ways.candidates(plain, graph, profile), strict=True)
    )
    named["planned"] = ways.chosen(plain, graph, profile)
    for name, plan in named.items():
        same = next((other for other in found if named[other].buckets == plan.buckets), None)
        found[name] = found[same] if same else measured(considered, plan, cluster, profile)
        way = found[name]
        what = f"{name}: iteration, predicted {way.predicted_s * 1e3:.0f} ms, over computation"
        yield _row(what, way.measured_s / computed_s, EQUAL_MAX)
        least = ONE_MIN if name == "one" else BOTH_MIN
        yield _row(f"{name}: updates per iteration", way.updates, least, least=True)
    best = max(way.updates_per_s for way in found.values())
    yield _row(
        "regret of the planner's, in updates per second",
        best / found["planned"].updates_per_s - 1,
        REGRET_MAX,
    )


def hosts() -> Cluster:
    rate = sum(CARDS_BIT_PER_S)
    return Cluster(
        hosts=tuple(
            Host(name=f"h{at}", bandwidth_bit_per_s=rate, cards_bit_per_s=CARDS_BIT_PER_S)
            for at in range(cases.WORLD)
        )
    )


def model() -> Profile:
    """The transformer, with computation as long as the coverage rate requires."""
    plain = cases.transformer()
    elements = sum(each.elements for each in plain.gradients)
    ring_bits = 8 * 4 * elements * 2 * (cases.WORLD - 1) / cases.WORLD
    computed_s = ring_bits / (CARDS_BIT_PER_S[0] * GOODPUT) / COVERAGE
    longer = computed_s / (plain.forward_s + plain.backward_s)
    return msgspec.structs.replace(
        plain,
        forward_s=longer * plain.forward_s,
        backward_s=longer * plain.backward_s,
        step_s=longer * plain.step_s,
        gradients=tuple(
            msgspec.structs.replace(each, ready_s=longer * each.ready_s, needed_s=longer * each.needed_s)
            for each in plain.gradients
        ),
    )


def measured(considered: search.Considered, plan: Plan, cluster: Cluster, profile: Profile) -> Way:
    """Measure a plan with the schedule that the promise allows."""
    graph = considered.question.graph
    step_s = predict_on(plan.buckets, graph, profile, workers=plan.workers).step_s
    evidence = msgspec.structs.replace(plan.evidence, predicted_step_s=step_s)
    plan = msgspec.structs.replace(plan, evidence=evidence)
    plan = delays.scheduled(plan, graph, profile, PROMISE, "linear")
    with tempfile.TemporaryDirectory(prefix="hocket-links-") as directory:
        files.write(Path(directory) / "plan.json", plan)
        files.write(Path(directory) / "profile.json", profile)
        argv = [sys.executable, "-m", "benches.delays.fidelity_rank", directory]
        slots = [host.name for host in cluster.hosts]
        taken_s = float(in_emulation(cluster, slots, argv, interface="all"))
    return Way(plan.predicted_step_s, taken_s, fmean(updates_per_step(plan)))


def _row(what: str, value: float, target: float | None = None, *, least: bool = False, unit: str = "") -> Row:
    return Row(name="links", what=what, value=value, target=target, least=least, unit=unit)

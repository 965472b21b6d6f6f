"""`search`: trials in a world that differs from the cluster file, and is noisy, against other ways to spend as many trials.

The world is the flow simulator. Each link is up to 30 % faster or slower than the file says, and measured steps have an error of 3
%. A way gets the file and measurements; its final plan is judged without noise.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from benches.row import Row
from benches.strategies.cases import CLUSTERS, MODELS
from benches.strategies.paper import geometric_mean
from hocket.artefacts.cluster import Cluster, both
from hocket.artefacts.plan import Bucket, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT
from hocket.planning.buckets import plan_of
from hocket.planning.question import Question, question_of
from hocket.planning.sampler import all_reduces, sampled
from hocket.planning.search import plan as planned
from hocket.planning.trials import Trials
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation.fidelity import predict

SETTINGS = (
    ("star", "uneven"),
    ("racks", "blocks"),
    ("racks", "uneven"),
    ("three racks", "even"),
    ("slow host", "uneven"),
    ("slow host", "blocks"),
)
SEEDS = 20
OFF = 0.3
NOISE = 0.03
FEW, MANY, RANDOM = 20, 200, 400
"""Numbers of trials."""
NEAR = 1.02
CHANCE = 1.1
"""Ratio of a first plan to the best known from which an improvement is possible."""


@dataclass
class World:
    """Measured and true step times. `trials`: measurements so far, with the plan of each."""

    true: Cluster
    profile: Profile
    draw: random.Random
    trials: list[tuple[Plan, float]] = field(default_factory=list)
    _known: dict[tuple[Bucket, ...], float] = field(default_factory=dict)

    def step_s(self, plan: Plan) -> float:
        if plan.buckets not in self._known:
            self._known[plan.buckets] = predict(plan, self.true, self.profile, fidelity="flow").step_s
        return self._known[plan.buckets]

    def measured_s(self, plan: Plan) -> float:
        found = self.step_s(plan) * math.exp(NOISE * self.draw.gauss(0, 1))
        self.trials.append((plan, found))
        return found

    def luckiest(self) -> Plan:
        return min(self.trials, key=lambda trial: trial[1])[0]


Way = Callable[[World, Question, Plan, int, int], Plan]
"""Search with a number of trials and a seed that returns its final plan."""


@dataclass(frozen=True)
class Case:
    """A cluster file, a model, and the seed of the true network."""

    said: Cluster
    profile: Profile
    seed: int

    def step_s(self, way: Way | None, trials: int) -> float:
        """True step of a way's final plan; None: the first plan's."""
        question = question_of(self.said, self.profile, len(self.said.hosts), EXACT, None)
        first = planned(self.said, self.profile, len(self.said.hosts))
        world = World(changed(self.said, self.seed), self.profile, random.Random(self.seed))  # noqa: S311  # of noise
        return world.step_s(first if way is None else way(world, question, first, trials, self.seed))


def measured() -> Iterator[Row]:
    """Rows of every way on every setting and seed."""
    cases = [
        Case(CLUSTERS[cluster], MODELS[model], seed) for cluster, model in SETTINGS for seed in range(SEEDS)
    ]
    few_s = [case.step_s(_trials, FEW) for case in cases]
    many_s = [case.step_s(_trials, MANY) for case in cases]
    first_s = [case.step_s(None, 0) for case in cases]
    near = [few <= NEAR * many for few, many in zip(few_s, many_s, strict=True)]
    yield _percent(f"after {FEW} trials within 2 % of what {MANY} find", near, 90)
    for name, way, trials in OTHERS:
        ratios = [case.step_s(way, trials) / few for case, few in zip(cases, few_s, strict=True)]
        yield Row(
            name="search",
            what=f"step of {name} over that of {FEW} trials, geometric mean",
            value=geometric_mean(ratios),
            target=1.0,
            least=True,
            unit=TIMES,
        )
        better = sum(ratio < 1 / NEAR for ratio in ratios)
        yield Row(
            name="search", what=f"cases of {len(cases)} in which {name} finds a better plan", value=better
        )
    chances = [
        few <= NEAR * first / CHANCE
        for few, many, first in zip(few_s, many_s, first_s, strict=True)
        if first >= CHANCE * min(few, many)
    ]
    what = f"of {len(chances)} cases in which the first plan takes {CHANCE} times as long as need be, improved as much"
    yield _percent(what, chances, 80)


def _percent(what: str, each: list[bool], target: float) -> Row:
    value = 100 * statistics.mean(each) if each else 100.0
    return Row(name="search", what=what, value=value, target=target, least=True, unit="%")


def changed(cluster: Cluster, seed: int) -> Cluster:
    """Return the cluster with other rates."""
    draw = random.Random(1000 + seed)  # noqa: S311  # of links
    hosts = tuple(
        msgspec.structs.replace(
            host, bandwidth_bit_per_s=both(host.bandwidth_bit_per_s)[0] * draw.uniform(1 - OFF, 1 + OFF)
        )
        for host in cluster.hosts
    )
    racks = tuple(
        msgspec.structs.replace(
            rack, uplink_bit_per_s=both(rack.uplink_bit_per_s)[0] * draw.uniform(1 - OFF, 1 + OFF)
        )
        if rack.uplink_bit_per_s
        else rack
        for rack in cluster.racks
    )
    return msgspec.structs.replace(cluster, hosts=hosts, racks=racks)


def _trials(world: World, question: Question, first: Plan, trials: int, seed: int) -> Plan:
    search = Trials(question, first, seed, trials_max=trials)
    while (plan := search.next()) is not None:
        step_s = world.measured_s(plan)
        search.observe(plan, step_s, NOISE * step_s)
    return search.best


def _random(world: World, question: Question, first: Plan, trials: int, seed: int) -> Plan:
    """AutoDist's Random+G: the guided sampler without predictions."""
    world.measured_s(first)
    for plan in islice(sampled(question, all_reduces(question.solved(0).uniform()), seed), trials):
        world.measured_s(plan)
    return world.luckiest()


def _descent(world: World, question: Question, first: Plan, trials: int, seed: int) -> Plan:
    """Coordinate descent: change the route of one bucket after the other, and keep improvements."""
    draw, best, best_s = random.Random(seed), first, world.measured_s(first)  # noqa: S311
    for at in range(trials):
        plan = _rerouted(question, best, at % len(best.buckets), draw)
        step_s = world.measured_s(plan)
        if step_s < best_s:
            best, best_s = plan, step_s
    return best


def _annealing(world: World, question: Question, first: Plan, trials: int, seed: int) -> Plan:
    """Threshold accepting: change the route of any bucket, and keep it unless it is worse by more than a falling threshold."""
    draw, current, current_s = random.Random(seed), first, world.measured_s(first)  # noqa: S311
    threshold_s = 0.1 * current_s
    for at in range(trials):
        plan = _rerouted(question, current, draw.randrange(len(current.buckets)), draw)
        step_s = world.measured_s(plan)
        if step_s < current_s + threshold_s * (trials - at) / trials:
            current, current_s = plan, step_s
    return world.luckiest()


def _rerouted(question: Question, plan: Plan, at: int, draw: random.Random) -> Plan:
    routes = [plan.buckets[at], *(each.buckets[0] for each in question.solved(0).uniform())]
    how = draw.choice(routes)
    bucket = msgspec.structs.replace(
        plan.buckets[at],
        route=how.route,
        order=how.order,
        chunk_bytes=how.chunk_bytes,
        codec=how.codec,
        codec_links=how.codec_links,
        rule=how.rule,
    )
    return plan_of([*plan.buckets[:at], bucket, *plan.buckets[at + 1 :]], plan.world, label="rerouted")


OTHERS: tuple[tuple[str, Way, int], ...] = (
    ("coordinate descent", _descent, FEW),
    ("annealing", _annealing, FEW),
    ("random plans", _random, FEW),
    (f"random plans with {RANDOM} trials", _random, RANDOM),
)
"""Other ways, and their trials."""

"""Plans and what is known of them before a job runs: programs after each pass, the plan, predictions, simulations, orders."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from benches.drawn import clusters as drawn
from benches.emulated import hosts
from benches.orders import clusters as ordered
from benches.orders.native import sizes_of
from benches.predict import measure as predicted
from benches.strategies import cases, paper, sampled, uneven
from hocket.artefacts import files
from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning import delays, schedules
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.compile import broadcast_program, stages, votes_program
from hocket.planning.cost import predict
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.links import link_graph
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.solve import own, solve
from hocket.planning.reordered import in_fastest_orders
from hocket.planning.search import considered
from hocket.tools.bench.layered import layered
from hocket.tools.simulation import flow, shortlist
from hocket.tools.simulation.networks import from_cluster
from tests.planning.planner_inputs import alternating
from tests.planning.test_plan_check import MODEL, mixed
from tests.planning.test_random_plans import GRADIENTS
from tests.programs.test_golden import CASES as GOLDEN
from tests.programs.test_golden import by_hand
from tests.programs.test_golden import plan as golden
from tests.support.random_plans import random_plan
from tests.unchanged.records import Texts, as_json

DRAWN, DRAWN_QUICK = 150, 4
RANDOM, RANDOM_QUICK = 200, 20
BUCKETS_MAX = 12
"""Buckets of a plan whose programs are recorded; others are of the same few shapes."""
TOLD_EVERY_S = 5.0
T = TypeVar("T")
ROOT = Path(__file__).parents[2]
STORED = ("examples/two-racks-of-four.toml", "python/hocket/tools/testbed/clusters/two-racks.toml")
DELAYED = Promise("delayed", merge=4, delay=2)
ORDERED = {"ring": 4_000_000, "halving_doubling": 4096, "double_binary_tree": 65_536, "two_level": 1_000_000}
"""Bytes of each collective whose order is searched for."""


def plans(*, quick: bool) -> Iterator[tuple[str, Plan]]:
    """Plans that no cluster decides: of tests, at random, and defaults."""
    for name, golden_case in GOLDEN.items():
        yield f"golden {name}", golden(*golden_case)
    yield "mixed", mixed()
    for world in (1, 2, 3, 8):
        for per_host in (1, 2):
            names = [f"h{rank // per_host}" for rank in range(world)]
            yield f"default of {world} by {per_host}", default_plan(MODEL, by_hosts(names))
    for seed in range(RANDOM_QUICK if quick else RANDOM):
        draw = random.Random(seed)  # noqa: S311
        rows = seed % 3 == 2
        gradients = tuple(each for each in GRADIENTS if each.shape or not rows)
        made = random_plan(draw, gradients, draw.randint(1, 6), traced=False, halves=seed % 2 == 1, rows=rows)
        yield f"random {seed}", made


def on_clusters(*, quick: bool) -> Iterator[drawn.Case]:
    """Clusters of the benches and of the tests, stored ones, drawn ones, each with a model."""
    named = {f"order {name}": make() for name, make in ordered.BY_RATES.items()}
    named |= {f"latency {racks}": ordered.latency(racks) for racks in ordered.SEEDS}
    named |= {f"strategy {name}": cluster for name, cluster in cases.CLUSTERS.items()}
    named |= {f"sampled {name}": cluster for name, cluster in sampled.CLUSTERS.items()}
    named |= {f"uneven {name}": said for name, (said, _) in uneven.NETWORKS.items()}
    named |= {f"paper {name}": cluster for name, (cluster, _) in paper.CLUSTERS.items()}
    named |= {f"tests {count}": alternating(hosts=count) for count in (4, 8)}
    named |= {Path(path).name: files.read(ROOT / path, Cluster) for path in STORED}
    named["one host"] = hosts([cases.GIGABIT])
    for at, (name, cluster) in enumerate(sorted(named.items())):
        if not quick or at % 8 == 0:
            model = sorted(cases.MODELS)[at % len(cases.MODELS)]
            yield drawn.Case(f"{name}, {model}", cluster, cases.MODELS[model], helpers=0)
    for name, cluster in predicted.CLUSTERS.items():
        if not quick:
            yield drawn.Case(f"predict {name}", cluster, predicted.profile(name), helpers=0)
    for seed in range(DRAWN_QUICK if quick else DRAWN):
        on = drawn.case(seed)
        yield replace(on, name=f"drawn {on.name}")


def programs_of(name: str, plan: Plan) -> Texts:
    for index in range(min(BUCKETS_MAX, len(plan.buckets))):
        for stage, program in stages(plan, index).items():
            yield f"{name}, bucket {index}, {stage}", str(program)


def world_of(on: drawn.Case) -> int:
    return sum(host.slots for host in on.cluster.hosts)


def step_of(on: drawn.Case, plan: Plan) -> dict[str, object]:
    """Predicted and simulated, to the last digit; of turns, a prediction alone."""
    if plan.schedule.turns:
        graph = link_graph(on.cluster, plan.world)
        return {"predicted_s": schedules.steady(plan, graph, on.profile).iteration_s}
    prediction = predict(plan, on.cluster, on.profile)
    outcome = flow.predict(plan, from_cluster(on.cluster, plan.world), on.profile).outcome
    return {
        "predicted_s": prediction.step_s,
        "loads": [[load.link, load.busy_s] for load in prediction.loads],
        "simulated_s": outcome.step_s,
        "exposed_s": outcome.exposed_s,
        "messages": outcome.messages,
        "done_s": [span.done_s for span in outcome.buckets],
    }


def watched(what: str, each: Iterable[T]) -> Iterator[T]:
    told_s = time.monotonic()
    for at, found in enumerate(each):
        if time.monotonic() - told_s > TOLD_EVERY_S:
            told_s = time.monotonic()
            click.echo(f"  {what} {at} clusters", err=True)
        yield found


class Planned:
    """What all kinds of plans are recorded from: each is searched for once, whatever asks first."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self._found: list[tuple[drawn.Case, dict[str, Plan]]] = []
        self._loose = list(plans(quick=quick))

    def on_clusters(self) -> list[tuple[drawn.Case, dict[str, Plan]]]:
        """The chosen plan, the builders', and of the chosen one those with other orders or with turns."""
        if not self._found:
            cases = watched("planned", on_clusters(quick=self.quick))
            self._found = [(on, self._plans(on)) for on in cases]
        return self._found

    def _plans(self, on: drawn.Case) -> dict[str, Plan]:
        searched = considered(on.cluster, on.profile, world_of(on), helpers=on.helpers)
        chosen = shortlist.chosen(searched, on.cluster, on.profile)
        found = {"chosen": chosen} | {f"builder {name}": plan for name, plan in searched.built}
        if not on.helpers:
            found["delayed"] = delays.scheduled(
                chosen, searched.question.graph, on.profile, DELAYED, guard="off"
            )
            found["reordered"] = in_fastest_orders(chosen, on.cluster, on.profile)
        return found

    def programs(self) -> Texts:
        for stage, program in by_hand().items():
            yield f"by hand, {stage}", str(program)
        for world in (1, 2, 3, 8):
            yield f"votes of {world}", str(votes_program([f"h{rank}" for rank in range(world)], 4))
            yield f"broadcast to {world}", str(broadcast_program(world, 1000, range((world + 1) // 2)))
        for name, plan in self._loose:
            yield from programs_of(name, plan)
        for on, found in self.on_clusters():
            yield from programs_of(on.name, found["chosen"])

    def plans(self) -> Texts:
        for name, plan in self._loose:
            yield name, as_json(msgspec.to_builtins(plan))
        for on, found in self.on_clusters():
            for title, plan in found.items():
                yield f"{on.name}, {title}", as_json(msgspec.to_builtins(plan))

    def steps(self) -> Texts:
        for on, found in watched("simulated", self.on_clusters()):
            for title, plan in found.items():
                yield f"{on.name}, {title}", as_json(step_of(on, plan))

    def orders(self) -> Texts:
        """The order of each collective, its cost, and what a simulation says that it is worth."""
        for on, _ in watched("ordered", self.on_clusters()):
            if len(on.cluster.hosts) < 2 or any(host.slots > 1 for host in on.cluster.hosts):
                continue
            matrix, network = of_cluster(on.cluster), from_cluster(on.cluster, on.world)
            for algorithm, size_bytes in ORDERED.items():
                sizes = sizes_of(algorithm, on.cluster)
                found = solve(matrix, own(Algorithm(algorithm, sizes), size_bytes))
                route = AllReduce(algorithm=algorithm, sizes=sizes)
                made = buckets([[Gradient("w", (size_bytes // 4,), "f32")]], route, found.order)
                plan, profile = plan_of(made, on.world, label=""), at_once(size_bytes // 4)
                tree = {
                    "order": found.order,
                    "cost_s": found.cost_s,
                    "given_s": found.given_s,
                    "bound_s": found.bound_s,
                    "simulated_s": flow.predict(plan, network, profile).outcome.step_s,
                }
                yield f"{on.name}, {algorithm}", as_json(tree)


def at_once(elements: int) -> Profile:
    return layered("at once", [("w", (elements,))], forward_s=0.0, backward_s=0.0)

"""Cost of the planner: the speed of its search, and the distance of its plans from the bound."""

from __future__ import annotations

import random
import time

from msgspec import Struct

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT
from hocket.planning.question import Question, question_of
from hocket.planning.search import EVALUATIONS
from hocket.planning.told import Solution
from hocket.tools.bench.layered import layered, weights

RACKS = 4
HOST_BIT_PER_S, TRUNK_BIT_PER_S = 1e10, 1e11
UNEQUAL = (1.0, 1.0, 1.0, 0.5)
"""Rates of hosts in turn: on equal hosts the search would end at once."""
FORWARD_S, BACKWARD_S = 0.03, 0.07
LONGER = 20
"""Multiple of the usual evaluations in the search with which the usual one is compared."""


class PlannerCost(Struct, frozen=True, kw_only=True):
    """Cost of one job: seconds until the plan is there, evaluations a second of the search alone, and the step's excess as a share
    of the bound.

    Attributes:
        evaluations_per_s: rate of a search LONGER times as long; None where none was made.
        longer: ratio of the step to that of this search; None where none was made.
    """

    world: int
    variables: int
    routes: int
    total_s: float
    evaluations_per_s: float | None
    gap: float
    longer: float | None = None


def measure(*, world: int = 64, variables: int = 200, longer: bool = True) -> PlannerCost:
    """Plan for ranks on hosts of their own in RACKS racks; gradients of 4 kB to 16 MB, drawn by a seed."""
    question = question_of(_cluster(world), _profile(variables), world, EXACT, None)
    seeds, without_s = _timed(question, 0)
    found, total_s = _timed(question, EVALUATIONS)
    best, longer_s = _timed(question, EVALUATIONS * LONGER) if longer else (None, 0.0)
    return PlannerCost(
        world=world,
        variables=variables,
        routes=len(found.proposals),
        total_s=total_s,
        evaluations_per_s=None
        if best is None
        else (best.evaluations - seeds.evaluations) / (longer_s - without_s),
        gap=found.step_s / found.bound_s - 1,
        longer=None if best is None else found.step_s / best.step_s,
    )


def _timed(question: Question, evaluations: int) -> tuple[Solution, float]:
    began_s = time.perf_counter()
    solution = question.solved(evaluations).solution
    return solution, time.perf_counter() - began_s


def _cluster(world: int) -> Cluster:
    hosts = (
        Host(
            name=f"h{at}",
            rack=f"rack{at * RACKS // world}",
            bandwidth_bit_per_s=HOST_BIT_PER_S * UNEQUAL[at % len(UNEQUAL)],
        )
        for at in range(world)
    )
    racks = (Rack(name=f"rack{at}", uplink_bit_per_s=TRUNK_BIT_PER_S) for at in range(RACKS))
    return Cluster(hosts=tuple(hosts), racks=tuple(racks))


def _profile(variables: int) -> Profile:
    draw = random.Random(1)  # noqa: S311  # sizes, not secrets
    elements = [1 << draw.randint(10, 22) for _ in range(variables)]
    return layered("drawn", weights(elements), forward_s=FORWARD_S, backward_s=BACKWARD_S)

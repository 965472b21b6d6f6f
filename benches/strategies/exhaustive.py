"""`exhaustive`: the search against all plans of 100 random small cases: any division of variables into buckets, any route for each,
any order of priority."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import permutations, product

from benches.emulated import hosts
from benches.row import Row
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Bucket, Part, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT, ROUNDED
from hocket.planning.buckets import plan_of
from hocket.planning.cost import Launch, Steps
from hocket.planning.question import Question, Solved, question_of
from hocket.tools.bench.layered import layered, weights

CASES = 100
VARIABLES_MAX, RANKS_MAX = 4, 6
STRATEGIES_MAX = 20_000
EVALUATIONS_MAX = 300
"""Limit on evaluations of whole plans, including a search's first ones."""
NEAR = 1.01
"""Ratio to the optimum's step up to which the optimum counts as found."""
FACTORS = (1.0, 0.5, 0.2, 0.1)

Division = tuple[tuple[int, ...], ...]
"""Variables of each bucket."""


def measured() -> Iterator[Row]:
    """Cases in which the optimum is found, and distance of the bound below it."""
    draw, found = random.Random(11), list[tuple[float, float, float, int]]()  # noqa: S311  # of cases
    while len(found) < CASES:
        question = case(draw)
        # One evaluation also searches for routes, so that all plans use the same ones.
        seeds = question.solved(1, splits=False)
        if strategies(len(question.profile.gradients), len(seeds.solution.proposals)) > STRATEGIES_MAX:
            continue
        begun = seeds.solution.evaluations
        solution = question.solved(max(0, EVALUATIONS_MAX - begun), splits=False).solution
        found.append((best_s(question, seeds), solution.step_s, solution.bound_s, solution.evaluations))
    missed = sum(step_s > NEAR * least_s for least_s, step_s, _, _ in found)
    gaps = [least_s / bound_s - 1 for least_s, _, bound_s, _ in found]

    def row(what: str, value: float, target: float, unit: str = "") -> Row:
        return Row(name="exhaustive", what=what, value=value, target=target, unit=unit)

    yield row(f"cases of {CASES} whose optimum is not found within 1 %", missed, 5)
    yield row("plans scored, in the longest search", max(each[3] for each in found), EVALUATIONS_MAX)
    yield row("bounds above the optimum", sum(gap < -1e-9 for gap in gaps), 0)
    yield row("median of the optimum above the bound", 100 * statistics.median(gaps), 5, "%")


def case(draw: random.Random) -> Question:
    """Random case: hosts with uneven links, some in racks, and a few variables."""
    world = draw.randint(2, RANKS_MAX)
    rates = [1e9 * draw.choice(FACTORS) for _ in range(world)]
    racks = draw.choice((1, 1, 2))
    cluster: Cluster = hosts(
        rates, racks, 1e9 * draw.choice(FACTORS) if racks > 1 else None, alternating=True
    )
    sizes = [int(10 ** draw.uniform(4.0, 6.5)) for _ in range(draw.randint(1, VARIABLES_MAX))]
    profile: Profile = layered(
        "random", weights(sizes), forward_s=0.0, backward_s=draw.choice((0.0, 0.02, 0.1))
    )
    return question_of(cluster, profile, world, draw.choice((EXACT, EXACT, ROUNDED)), None)


def best_s(question: Question, solved: Solved) -> float:
    """Shortest step of all plans."""
    variables = range(len(question.profile.gradients))
    subsets = [subset for subset in product((False, True), repeat=len(variables)) if any(subset)]
    members = [tuple(at for at in variables if subset[at]) for subset in subsets]
    plans = [alternative for each in members for alternative in _alternatives(question, solved, each)]
    steps = Steps(plans, question.profile)
    cost, routes = steps.cost(question.graph), len(plans) // len(members)
    launches: dict[tuple[int, ...], Sequence[Launch]] = {
        each: [steps.launches[at * routes + route][0] for route in range(routes)]
        for at, each in enumerate(members)
    }
    return min(
        steps.step_s(cost, chosen)
        for division in divisions(tuple(variables))
        for order in permutations(division)
        for chosen in product(*(launches[bucket] for bucket in order))
    )


def strategies(variables: int, routes: int) -> int:
    found = 0
    for division in divisions(tuple(range(variables))):
        orders = 1
        for at in range(len(division)):
            orders *= at + 1
        found += orders * routes ** len(division)
    return found


def divisions(variables: tuple[int, ...]) -> Iterator[Division]:
    """All ways to divide variables into buckets.

    >>> len(list(divisions((0, 1, 2, 3))))
    15
    """
    if not variables:
        yield ()
        return
    first, rest = variables[0], variables[1:]
    for division in divisions(rest):
        yield ((first,), *division)
        for at, bucket in enumerate(division):
            yield (*division[:at], (first, *bucket), *division[at + 1 :])


def _alternatives(question: Question, solved: Solved, members: tuple[int, ...]) -> Iterator[Plan]:
    """Plans of a bucket of these variables alone, by route."""
    gradients = [question.profile.gradients[at] for at in members]
    first = solved.uniform()[0].buckets[0]
    bucket = Bucket(
        parts=tuple(Part(variable=each.name, stop=each.elements) for each in gradients),
        elements=sum(each.elements for each in gradients),
        dtype="f32",
        route=first.route,
        order=first.order,
        priority=0,
    )
    for each in solved.alternatives(bucket):
        yield plan_of([each.bucket], len(question.graph.hosts), label=each.label)

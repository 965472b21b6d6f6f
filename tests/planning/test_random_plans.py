"""Any sound plan sums, on the reference executor, and sends what the cost model thinks that it sends."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.artefacts.plan_check import findings
from hocket.planning.compile import programs
from hocket.planning.routes import name
from hocket.planning.traffic import sent
from tests.support.means import assert_means
from tests.support.random_plans import random_plan

SEEDS = 500
GRADIENTS = tuple(
    Gradient(f"p{at}", shape, dtype)
    for at, (shape, dtype) in enumerate(
        [((3, 5), "f32"), ((5,), "f32"), ((17, 2), "f32"), ((1,), "f32"), ((40,), "f64"), ((), "f64")]
    )
)


def plan_of_seed(seed: int, *, traced: bool = False) -> Plan:
    draw = random.Random(seed)  # noqa: S311
    plan = random_plan(draw, GRADIENTS, draw.randint(1, 6), traced=traced)
    assert list(findings(plan, GRADIENTS)) == []
    return plan


@pytest.mark.parametrize("part", range(10))
def test_plans_at_random_end_with_means(part: int) -> None:
    """Broken: some mix of routes, orders, chunks and cuts would lose a gradient, or add one twice."""
    for seed in range(part, SEEDS, 10):
        assert_means(plan_of_seed(seed), GRADIENTS, seed)


def test_bytes_of_plans_at_random_are_those_that_are_counted() -> None:
    """Broken: a plan would be chosen by other traffic than it makes."""
    for seed in range(0, SEEDS, 5):
        plan = plan_of_seed(seed)
        for bucket, program in zip(plan.buckets, programs(plan), strict=True):
            if name(bucket.route) == "in_place":
                continue
            moved: Counter[tuple[int, int]] = Counter()
            for rank in range(plan.world):
                for op in program.ops(rank):
                    if op["op"] == "send":
                        _, start, stop = op["src"]
                        moved[rank, op["peer"]] += ITEM_BYTES[bucket.dtype] * (stop - start)
            counted = {pair: count * ITEM_BYTES[bucket.dtype] for pair, count in sent(bucket).items()}
            assert {pair: count for pair, count in counted.items() if count} == dict(moved)

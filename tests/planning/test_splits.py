"""Variables that the planner cuts, and buckets of one plan in different orders."""

from __future__ import annotations

import random

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.gradient import Gradient as Shape
from hocket.artefacts.plan import Plan
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Gradient, Profile
from hocket.planning import search
from hocket.planning.cost import predict
from hocket.training.memory.arenas import arenas_of, arranged
from tests.support.means import assert_means

CARD, PATH, WIDER = 1e9, 1e8, 3e8


def narrow_paths(world: int = 5) -> Cluster:
    """Hosts of fast cards, and between each two of them a slow path of its own: one connection cannot fill a card. Those between
    neighbours, rack by rack, are wider: an exchange of all with all does not fill them."""
    around = [*range(0, world, 2), *range(1, world, 2)]
    wider = {frozenset(pair) for pair in zip(around, [*around[1:], around[0]], strict=True)}

    def rate(i: int, j: int) -> float:
        return 4e10 if i == j else WIDER if frozenset((i, j)) in wider else PATH

    rates = tuple(tuple(rate(i, j) for j in range(world)) for i in range(world))
    hosts = tuple(Host(name=f"h{at}", rack=f"rack{at % 2}", bandwidth_bit_per_s=CARD) for at in range(world))
    return Cluster(hosts=hosts, bandwidth_bit_per_s=rates)


def model(*elements: int) -> Profile:
    return search.neutral_profile(
        Gradient(name=f"g{at}", shape=(count,), dtype="f32", ready_s=0.0, needed_s=0.0)
        for at, count in enumerate(elements)
    )


def cut(plan: Plan, profile: Profile) -> int:
    return sum(len(bucket.parts) for bucket in plan.buckets) - len(profile.gradients)


def test_one_large_variable_takes_several_routes_at_once() -> None:
    """Broken: a network whose paths are narrower than its cards would carry a large tensor on a few of them alone."""
    cluster, large = narrow_paths(), model(4_000_000)
    plan = search.plan(cluster, large, 5)
    check(plan, large.gradients)
    assert cut(plan, large) > 0
    assert len({bucket.order for bucket in plan.buckets}) > 1
    assert "split buckets" in plan.label
    assert plan.predicted_step_s == pytest.approx(predict(plan, cluster, large).step_s, rel=1e-9)
    whole = min(each.predicted_step_s for each in search.candidates(cluster, large, 5))
    assert whole > 1.3 * plan.predicted_step_s


def test_small_variables_stay_whole() -> None:
    """Broken: parts would be made that do not pay their latency."""
    for profile in (model(20_000), model(*[5_000] * 8)):
        assert cut(search.plan(narrow_paths(), profile, 5), profile) == 0


def test_cut_variables_are_explained_bucket_by_bucket() -> None:
    """Broken: `--explain` would show one of the ways of a variable that has several."""
    found = search.considered(narrow_paths(), model(4_000_000), 5)
    options = found.options(found.best, "g0")
    of_bucket = {at: [each for each in options if each.bucket == at] for at in range(len(found.best.buckets))}
    assert len(of_bucket) > 1
    for each in of_bucket.values():
        assert [option.chosen for option in each].count(True) == 1
        assert each[0].step_s >= found.best.predicted_step_s - 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_planned_cuts_end_with_means_and_are_not_packed(seed: int) -> None:
    """Broken: what the planner cuts would lose a gradient, or be copied together in every step."""
    draw = random.Random(seed)  # noqa: S311
    profile = model(*(draw.choice([3, 1000, 40_000, 150_000]) for _ in range(draw.randint(1, 6))), 200_000)
    world = draw.choice([3, 4, 5])
    plan = search.plan(narrow_paths(world), profile, world)
    gradients = tuple(Shape(each.name, each.shape, each.dtype) for each in profile.gradients)
    check(plan, profile.gradients)
    assert_means(plan, gradients, seed)
    named = {each.name: each for each in gradients}
    lying = arranged(plan, named)
    for arena in arenas_of([bucket.parts for bucket in lying.buckets], named):
        assert all(len(arena.runs(lying.buckets[number].parts)) == 1 for number in arena.numbers)


def test_a_plan_with_cuts_is_read_back_equal() -> None:
    """Broken: a file would have other parts than its plan."""
    plan = search.plan(narrow_paths(), model(4_000_000), 5)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan

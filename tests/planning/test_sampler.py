"""Random plans, and the choice among plans."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from benches.emulated import hosts
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce, Gathered, Owned, Plan
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import EXACT
from hocket.planning.choice import choices, chosen, reliable_above_s
from hocket.planning.question import Question, question_of
from hocket.planning.sampler import all_reduces, sampled
from hocket.planning.search import neutral_profile
from tests.planning.planner_inputs import alternating, model

PLANS = 60


def gradient(name: str, shape: tuple[int, ...], *, dtype: str = "f32", sparse: bool = False) -> Gradient:
    return Gradient(name=name, shape=shape, dtype=dtype, ready_s=0.0, needed_s=0.0, sparse=sparse)


UNEVEN = neutral_profile(
    [
        gradient("small", (10,)),
        gradient("narrow", (3, 500_000)),
        gradient("half", (1000, 100), dtype="bf16"),
        gradient("scalar", ()),
        gradient("words", (5000, 8), sparse=True),
        gradient("large", (4000, 2000)),
    ]
)


def question(cluster: Cluster, profile: Profile) -> Question:
    return question_of(cluster, profile, len(cluster.hosts), EXACT, None)


def drawn(cluster: Cluster, profile: Profile, count: int = PLANS) -> list[Plan]:
    asked = question(cluster, profile)
    templates = all_reduces(asked.solved(0).uniform())
    return list(islice(sampled(asked, templates, seed=2), count))


@pytest.mark.parametrize("profile", [UNEVEN, model()])
def test_samples_are_sound_plans_that_can_be_predicted(profile: Profile) -> None:
    """Broken: a trial would end a job, or train another model."""
    cluster = alternating()
    for plan in drawn(cluster, profile):
        check(plan, profile.gradients)
        assert question(cluster, profile).predicted(plan).step_s > 0


def test_small_variables_stay_whole_and_large_ones_are_cut() -> None:
    """Broken: buckets of a few bytes would cost more than they carry, or one owner get most of the model."""
    whole, most = {"small", "scalar", "words"}, 0
    for plan in drawn(alternating(), UNEVEN):
        parts = [part.variable for bucket in plan.buckets for part in bucket.parts]
        assert all(parts.count(name) == 1 for name in whole)
        assert parts.count("large") >= 2
        assert parts.count("narrow") <= 3
        most = max(most, parts.count("large"))
    assert most == 4


def test_samples_mix_routes_and_travel_differently() -> None:
    """Broken: a search would look at a corner of what there is."""
    plans = drawn(alternating(), UNEVEN)
    routes = {type(bucket.route) for plan in plans for bucket in plan.buckets}
    assert routes == {AllReduce, Owned, Gathered}
    assert len({plan.buckets for plan in plans}) > PLANS // 2
    mixed = [len({bucket.route for bucket in plan.buckets}) for plan in plans]
    assert max(mixed) >= 3


def test_owners_carry_what_their_links_can() -> None:
    """Broken: a slow host would get as many variables as a fast one."""
    cluster = hosts([1e8, *([1e9] * 3)])
    held = [0, 0, 0, 0]
    for plan in drawn(cluster, model(40, 100_000), 100):
        for bucket in plan.buckets:
            if isinstance(bucket.route, Owned):
                held[bucket.route.owners[0].rank] += bucket.elements
    assert held[0] < 0.5 * min(held[1:])
    assert max(held[1:]) < 1.5 * min(held[1:])


def test_the_same_seed_gives_the_same_samples() -> None:
    """Broken: nobody could reproduce a search."""
    assert drawn(alternating(), UNEVEN, 5) == drawn(alternating(), UNEVEN, 5)


def test_reliable_predictions_rule_plans_out_and_others_do_not() -> None:
    """Broken: trials would be spent on hopeless plans, or the best one be ruled out by predictions that say nothing."""
    draw = random.Random(1)  # noqa: S311
    right = [(at / 10, at / 10 + 0.001) for at in range(1, 15)]
    wrong = [(predicted, draw.random()) for predicted, _ in right]
    assert reliable_above_s(right) == pytest.approx(0.2)
    assert reliable_above_s(wrong) > 1.0
    only_far = [(1.0, 1.5), (1.1, 1.3), (1.2, 1.1), (1.3, 1.0), (5.0, 6.0), (7.0, 8.0), (9.0, 9.0)]
    assert 1.3 <= reliable_above_s(only_far) <= 5.0


def test_equally_good_plans_are_tried_if_they_differ_from_what_was() -> None:
    """Broken: all trials of a round would be variants of one plan."""
    asked = question(alternating(), model())
    ring, two_level = (
        next(plan for plan in asked.solved(0).uniform() if plan.label.startswith(start))
        for start in ("given ring 1 MiB", "contiguous two-level 1 MiB")
    )
    again = next(plan for plan in asked.solved(0).uniform() if plan.label == "contiguous ring 1 MiB")
    assert choices(ring) == choices(again)
    assert chosen([(1.0, again), (1.0, two_level)], [ring], 1) == [two_level]
    assert chosen([(1.0, again), (0.5, two_level)], [ring], 1) == [again]
    assert chosen([(0.0, ring)], [], 3) == [ring]

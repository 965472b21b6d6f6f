"""The builders of AutoDist's code, as plans."""

from __future__ import annotations

import pytest

from benches.emulated import hosts
from hocket import _native
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce, Gathered, Owned, Owner, Plan
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import EXACT
from hocket.planning.asked import asked_for
from hocket.planning.builders import BUILDERS
from hocket.planning.built import BUCKETS_MAX, plan_by
from hocket.planning.built import built as built_plans
from hocket.planning.compile import programs
from hocket.planning.question import question_of
from hocket.planning.search import considered, neutral_profile
from hocket.tools.simulation import fidelity, shortlist
from tests.planning.planner_inputs import alternating, model
from tests.planning.test_never_worse import CASES

STAR = hosts([1e9] * 4)
SHAPES = {"a": (8, 10_000), "b": (7, 1000), "c": (), "d": (6, 5000), "words": (90_000, 4)}


def profile(*, sparse: bool = False) -> Profile:
    return neutral_profile(
        Gradient(
            name=name, shape=shape, dtype="f32", ready_s=0.0, needed_s=0.0, sparse=sparse and name == "words"
        )
        for name, shape in SHAPES.items()
    )


def built(cluster: Cluster, made_for: Profile) -> dict[str, Plan]:
    world = sum(host.slots for host in cluster.hosts)
    return dict(built_plans(question_of(cluster, made_for, world, EXACT, None)))


def owners(plan: Plan) -> dict[str, dict[int, int]]:
    return {
        name: {owner.rank: owner.share for owner in bucket.route.owners}
        for bucket in plan.buckets
        for name in bucket.variables
        if isinstance(bucket.route, Owned)
    }


@pytest.mark.parametrize("name", CASES)
def test_every_builder_makes_sound_plans_of_any_model(name: str) -> None:
    """Broken: a builder would train another model, or not at all."""
    cluster, made_for = CASES[name]
    found = built(cluster, made_for)
    assert list(found) == list(BUILDERS)
    for plan in found.values():
        check(plan, made_for.gradients)
        assert len(programs(plan)) == len(plan.buckets)  # verified


@pytest.mark.parametrize("name", CASES)
def test_no_builder_is_faster_than_the_plan(name: str) -> None:
    """Broken: a search would return what a rule of thumb beats."""
    cluster, made_for = CASES[name]
    found = considered(cluster, made_for, sum(host.slots for host in cluster.hosts))
    names = {name for name, _ in found.built}
    assert names >= set(BUILDERS)
    admitted = [plan for _, plan in found.built if found.question.admits(plan)]
    assert len(admitted) >= 2
    for plan in admitted:
        cuts = sum(len(bucket.parts) for bucket in plan.buckets) > len(made_for.gradients)
        gained = _native.SPLIT_WORTH if cuts else 1.0
        assert gained * found.best.predicted_step_s <= plan.predicted_step_s + 1e-6


@pytest.mark.parametrize("name", list(CASES)[:12])
def test_message_by_message_no_builder_is_faster(name: str) -> None:
    """Broken: `hocket plan` would choose a plan that parameter servers beat."""
    cluster, made_for = CASES[name]
    found = considered(cluster, made_for, sum(host.slots for host in cluster.hosts))
    chosen = fidelity.predict(shortlist.chosen(found, cluster, made_for), cluster, made_for).step_s
    for builder, plan in found.built:
        if builder in BUILDERS:
            assert chosen <= 1.02 * fidelity.predict(plan, cluster, made_for).step_s


def test_ps_is_on_the_first_host() -> None:
    """Broken: the paper's baseline would be another one."""
    assert all(each == {0: 1} for each in owners(built(STAR, profile())["ps"]).values())


def test_load_balancing_goes_by_bytes_in_the_model_s_order() -> None:
    """Broken: the largest variables would be on one host."""
    found = owners(built(STAR, profile())["ps-load-balancing"])
    assert {name: list(each) for name, each in found.items()} == {
        "a": [0],
        "b": [1],
        "c": [2],
        "d": [3],
        "words": [2],
    }


def test_partitions_are_as_many_as_the_smallest_divisor() -> None:
    """Broken: shards would be others than AutoDist's, and so their loads."""
    found = owners(built(STAR, profile())["partitioned-ps"])
    assert found["a"] == {0: 1, 1: 1}
    assert sorted(found["b"].values()) == [1, 2, 2, 2]  # seven shards on four hosts
    assert len(found["c"]) == 1
    assert sorted(found["d"].values()) == [1, 1]


def test_uneven_partitions_do_not_divide() -> None:
    """Broken: the builder would be the even one by another name."""
    found = owners(built(STAR, profile())["uneven-partitioned-ps"])
    assert sorted(found["a"].values()) == [2, 3, 3]
    assert sorted(found["b"].values()) == [3, 4]
    assert sorted(found["d"].values()) == [1, 1, 2, 2]


def test_groups_are_of_consecutive_variables() -> None:
    """Broken: AutoDist's chunks would be buckets of something else."""
    question = question_of(STAR, profile(), 4, EXACT, None)
    asked = [asked_for(f"{name},chunk=2") for name in ("all-reduce", "partitioned-all-reduce")]
    found = dict(built_plans(question, asked))
    assert {bucket.variables for bucket in found["all-reduce"].buckets} == {
        ("a", "b"),
        ("c", "d"),
        ("words",),
    }
    parts = [part for bucket in found["partitioned-all-reduce"].buckets for part in bucket.parts]
    assert sum(part.variable == "b" for part in parts) == 4  # seven shards by two


def test_parallax_sends_sparse_gradients_as_rows_and_dense_ones_by_all_reduce() -> None:
    """Broken: the baseline for sparse models would be a dense one."""
    found = built(STAR, profile(sparse=True))["parallax"]
    routes = {bucket.variables: bucket.route for bucket in found.buckets}
    assert isinstance(routes["words",], Gathered)
    assert {type(route) for names, route in routes.items() if names != ("words",)} == {AllReduce}


def test_builders_have_their_best_setting() -> None:
    """Broken: a search would win against baselines that nobody would use."""
    many = model(100, 40_000)
    cluster = alternating()
    question = question_of(cluster, many, 4, EXACT, None)
    for name in ("all-reduce", "ps-load-balancing"):
        asked = asked_for(name)
        steps_s = [
            question.predicted(plan_by(question, asked, builder)).step_s for builder in asked.variants()
        ]
        assert len(steps_s) > 4
        assert built(cluster, many)[name].predicted_step_s == pytest.approx(min(steps_s))
        assert max(steps_s) > 1.005 * min(steps_s)


def test_owners_of_hosts_with_several_ranks_are_their_first() -> None:
    """Broken: two ranks that share a link would both serve over it."""
    cluster = Cluster(hosts=tuple(Host(name=name, slots=2, bandwidth_bit_per_s=1e9) for name in "ab"))
    found = owners(built(cluster, profile())["ps-load-balancing"])
    assert {rank for each in found.values() for rank in each} == {0, 2}


def test_a_large_prime_is_not_as_many_buckets() -> None:
    """Broken: a vocabulary of a prime number of words would be cut into as many buckets."""
    words = Gradient(name="words", shape=(10_007, 64), dtype="f32", ready_s=0.0, needed_s=0.0)
    found = built(STAR, neutral_profile([words]))
    assert all(len(plan.buckets) <= BUCKETS_MAX for plan in found.values())
    assert sum(owner.share for owner in _owned(found["partitioned-ps"]).owners) == 10_007
    assert _owned(found["uneven-partitioned-ps"]).owners == (
        Owner(rank=0, share=5004),
        Owner(rank=1, share=5003),
    )


def _owned(plan: Plan) -> Owned:
    route = plan.buckets[0].route
    assert isinstance(route, Owned)
    return route


def test_one_rank_needs_no_builder() -> None:
    """Broken: a job of one rank could not be planned."""
    assert built(hosts([1e9]), profile()) == {}

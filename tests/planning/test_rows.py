"""Gradients that travel as rows in plans: the bound, what is predicted, and that sparse ones always do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Gathered, Schedule
from hocket.artefacts.plan_check import findings
from hocket.artefacts.profile import Gradient as Profiled
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Word, promise_of
from hocket.planning import traffic
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.cost import predict
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.rows import rows_bucket, rows_max, sent, with_rows
from hocket.planning.search import considered, neutral_profile
from hocket.planning.search import plan as plan_for
from hocket.tools.simulation import flow
from hocket.tools.simulation.networks import from_cluster

WORDS = Gradient("words", (10_000, 16), "f32", sparse=True)
MODEL = (
    Gradient("a", (30, 7), "f32"),
    WORDS,
    Gradient("b", (11,), "f32"),
    Gradient("h", (5, 2), "f16", sparse=True),
)
STAR = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd"))


@pytest.mark.parametrize("world", [2, 3, 8])
@pytest.mark.parametrize("shape", [(10_000, 16), (777, 1), (64, 300)])
def test_the_bound_is_where_the_dense_gradient_is_less(world: int, shape: tuple[int, int]) -> None:
    """Broken: an iteration would be reduced densely where its rows are less, or sent as more bytes than the gradient has."""
    gradient = Gradient("w", shape, "f32", sparse=True)
    order = tuple(range(world))
    bucket = rows_bucket(gradient, order, 0)
    (dense,) = buckets([[gradient]], AllReduce(algorithm="ring"), order)
    dense_bytes = sum(elements * 4 for elements in traffic.sent(dense).values())

    def rows_bytes(count: int) -> int:
        return sum(sent(bucket, [count] * world).values()) - sum(sent(bucket, [0] * world).values())

    bound = rows_max(gradient, world)
    assert 0 < rows_bytes(bound) <= dense_bytes
    assert rows_bytes(bound + 1) > dense_bytes


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_what_is_predicted_is_what_is_sent(algorithm: str) -> None:
    """Broken: rows would be chosen, or not, by other traffic than they make."""
    bucket = rows_bucket(WORDS, (2, 0, 3, 1), 0, algorithm=algorithm)
    plan = plan_of([bucket], 4, label="rows")
    for touched in (1, 100, 3000):
        own = words(touched)
        predicted = predict(plan, STAR, neutral_profile([own]))
        # What says how many rows there are is a few bytes, and not predicted.
        counts = sum(sent(bucket, [0] * 4).values())
        crossed = 2 * (sum(sent(bucket, [touched] * 4).values()) - counts)
        assert sum(load.bytes for load in predicted.loads) == pytest.approx(crossed, rel=1e-9)
    dense = plan_of(buckets([[WORDS]], AllReduce(algorithm="ring"), (2, 0, 3, 1)), 4, label="dense")
    few = neutral_profile([replace(own, touched=100)])
    assert predict(plan, STAR, few).step_s < predict(dense, STAR, few).step_s / 10


def test_a_default_plan_has_sparse_gradients_as_rows() -> None:
    """Broken: SparseAdam would be given dense gradients, and an embedding would cost its whole table in each step."""
    for hosts in ("aaaa", "abcd", "aabb"):
        plan = default_plan(MODEL[::-1], by_hosts(list(hosts)))
        assert list(findings(plan, MODEL)) == []
        rows = {bucket.variables for bucket in plan.buckets if isinstance(bucket.route, Gathered)}
        assert rows == {("words",), ("h",)}


def test_sparse_gradients_leave_the_buckets_of_others() -> None:
    """Broken: a plan of somebody who does not know of rows would make them dense, or lose what travels with them."""
    ring = AllReduce(algorithm="ring")
    plan = plan_of(buckets([[MODEL[0], WORDS, MODEL[2]], [MODEL[3]]], ring, (1, 0)), 2, label="dense")
    found = with_rows(plan, MODEL)
    assert list(findings(found, MODEL)) == []
    assert [bucket.variables for bucket in found.buckets] == [("a", "b"), ("words",), ("h",)]
    assert [type(bucket.route) for bucket in found.buckets] == [AllReduce, Gathered, Gathered]
    assert {bucket.order for bucket in found.buckets} == {(1, 0)}
    assert with_rows(found, MODEL) == found


def test_a_planned_job_has_sparse_gradients_as_rows() -> None:
    """Broken: a job that plans beside training would go on with dense gradients in the middle, which SparseAdam refuses."""
    profile = neutral_profile(
        Profiled(
            name=each.name,
            shape=each.shape,
            dtype=each.dtype,
            sparse=each.sparse,
            ready_s=0,
            needed_s=0,
            touched=3 if each.sparse else None,
        )
        for each in MODEL
    )
    found = considered(STAR, profile, 4)
    for plan in (plan_for(STAR, profile, 4), *found.fastest):
        assert list(findings(plan, MODEL)) == []
        rows = {bucket.variables for bucket in plan.buckets if isinstance(bucket.route, Gathered)}
        assert rows == {("words",), ("h",)}
    assert {each.label for each in found.options(found.best, "words")}
    late = plan_for(STAR, profile, 4, promise=promise_of("delayed"))
    assert late.schedule == Schedule(), "sessions do not run rows late"


def profile_of(touched: int, *, sparse: bool) -> Profile:
    words = Profiled(
        name="words",
        shape=(50_000, 64),
        dtype="f32",
        sparse=sparse,
        ready_s=0,
        needed_s=0,
        touched=touched,
    )
    return neutral_profile([words, Profiled(name="a", shape=(300, 300), dtype="f32", ready_s=0, needed_s=0)])


@pytest.mark.parametrize("promise", ["exact", "rounded"])
def test_the_search_sends_rows_where_a_step_touches_few(promise: Word) -> None:
    """Broken: an embedding of a dense layer's kind would cost its whole table in each step, or one that is used as a whole would
    travel as rows with their numbers; or the search would score other plans than it returns."""
    for touched, rows in ((20, True), (2_000, True), (24_000, None), (50_000, False)):
        found = considered(STAR, profile_of(touched, sparse=False), 4, promise=promise_of(promise))
        of_words = [bucket for bucket in found.best.buckets if "words" in bucket.variables]
        kinds = {isinstance(bucket.route, Gathered) for bucket in of_words}
        assert rows is None or kinds == {rows}
        assert not list(findings(found.best))
        predicted = found.question.predicted(found.best).step_s
        assert found.best.predicted_step_s == pytest.approx(predicted, rel=1e-6)
        if rows:
            dense = considered(STAR, profile_of(50_000, sparse=False), 4, promise=promise_of(promise))
            assert predicted < dense.best.predicted_step_s / 3


def test_a_sparse_gradient_travels_as_rows_even_where_a_step_touches_all() -> None:
    """Broken: SparseAdam would be given a dense gradient."""
    found = considered(STAR, profile_of(50_000, sparse=True), 4)
    (bucket,) = [each for each in found.best.buckets if "words" in each.variables]
    assert isinstance(bucket.route, Gathered)


def test_a_simulation_sends_the_rows_that_a_step_touches() -> None:
    """Broken: `hocket plan` would leave a plan for one that it simulates with less."""
    plan = plan_of([rows_bucket(WORDS, range(4), 0)], 4, label="rows")
    steps = [
        flow.predict(plan, from_cluster(STAR, 4), neutral_profile([words(touched)])).outcome.step_s
        for touched in (10, 100, 4_000)
    ]
    assert steps == sorted(steps)
    assert steps[2] > 5 * steps[0]


def words(touched: int) -> Profiled:
    return Profiled(
        name="words", shape=WORDS.shape, dtype="f32", sparse=True, ready_s=0, needed_s=0, touched=touched
    )


def test_a_sparse_gradient_is_simulated_without_a_table() -> None:
    """Broken: the same few rows would be predicted to take longer, the larger the embedding is: 2 s for 10 million rows."""
    steps_s = []
    for count in (10_000, 1_000_000):
        own = Profiled(
            name="words", shape=(count, 16), dtype="f32", ready_s=0.0, needed_s=0.0, touched=100, sparse=True
        )
        plan = plan_of([rows_bucket(own, (0, 1, 2, 3), 0)], 4, label="rows")
        steps_s.append(flow.predict(plan, from_cluster(STAR, 4), neutral_profile([own])).outcome.step_s)
    assert steps_s[0] == pytest.approx(steps_s[1], rel=1e-9)


def test_a_dense_gradient_of_rows_is_simulated_with_its_table() -> None:
    """Broken: rows would be chosen for dense gradients as if adding them up took no time."""

    def step_s(*, sparse: bool) -> float:
        own = Profiled(
            name="words",
            shape=(1_000_000, 16),
            dtype="f32",
            ready_s=0.0,
            needed_s=0.0,
            touched=100,
            sparse=sparse,
        )
        plan = plan_of([rows_bucket(own, (0, 1, 2, 3), 0)], 4, label="rows")
        return flow.predict(plan, from_cluster(STAR, 4), neutral_profile([own])).outcome.step_s

    assert step_s(sparse=False) > step_s(sparse=True)


def test_buckets_of_equal_shape_with_and_without_a_table_have_programs_of_their_own() -> None:
    """Broken: a sparse and a dense gradient of one shape would both be simulated as the first of them."""
    owns = [
        Profiled(
            name=name, shape=(1000, 16), dtype="f32", ready_s=0.0, needed_s=0.0, touched=100, sparse=sparse
        )
        for name, sparse in (("words", True), ("table", False), ("more", True))
    ]
    plan = plan_of([rows_bucket(own, (0, 1), at) for at, own in enumerate(owns)], 2, label="rows")
    prepared = flow.Prepared.of(plan, neutral_profile(owns))
    assert prepared.place == [0, 1, 0]
    assert len(flow.Prepared.of(plan).programs) == 1

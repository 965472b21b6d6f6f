"""Buckets over owners: any shares, ranks that only own, stations; in one program, or in two with an update between them."""

from collections import defaultdict

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hocket import reference
from hocket._native import Program, owned_parts, owned_program, verify_halves
from hocket.artefacts.plan import AllReduce, Bucket, Direct, Owned, Owner, Plan, TwoLevel
from hocket.errors import ProgramError, UsageError
from hocket.planning.buckets import plan_of
from hocket.planning.compile import bucket_program, halves
from hocket.planning.told import Shares
from hocket.planning.traffic import sent
from tests.support.engines import FABRICS, Job


@st.composite
def plans(draw, world=None, update="replicas"):
    """A plan of one bucket, whose ranks beyond the workers only own."""
    world = draw(st.integers(1, 9)) if world is None else world
    order = draw(st.permutations(range(world)))
    workers = sorted(draw(st.sets(st.integers(0, world - 1), min_size=1)))
    ranks = draw(st.sets(st.integers(0, world - 1), min_size=1))
    owners = tuple(Owner(rank=rank, share=draw(st.integers(1, 4))) for rank in sorted(ranks))
    stations, left = [], len(workers)
    while left:
        stations.append(draw(st.integers(1, left)))
        left -= stations[-1]
    bucket = Bucket(
        parts=(),
        elements=draw(st.sampled_from([0, 1, 2, 7, 101, 1000])),
        dtype="f32",
        route=Owned(
            owners=owners,
            update=update,
            via=draw(st.sampled_from([Direct(), TwoLevel(stations=tuple(stations))])),
        ),
        order=tuple(rank for rank in order if rank in workers or rank in ranks),
        priority=0,
        chunk_bytes=draw(st.sampled_from([16, 60, 4096])),
    )
    return msgspec.structs.replace(plan_of([bucket], world, label=""), workers=tuple(workers))


def gradients(plan: Plan, seed: int) -> np.ndarray:
    """By rank; those without a gradient have what must not be added."""
    made = np.random.default_rng(seed).standard_normal((plan.world, plan.buckets[0].elements))
    made[[rank for rank in range(plan.world) if rank not in plan.workers]] = np.nan
    return made.astype(np.float32)


def run(program: Program, inputs: np.ndarray) -> np.ndarray:
    buffers = [[row.copy()] for row in inputs]
    reference.run(program, buffers)
    return np.stack([each for (each,) in buffers])


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(plans(), st.integers(0, 2**32 - 1))
def test_workers_get_the_mean(plan, seed):
    """A worker would train on a sum that lacks a gradient, or has the memory of a rank that does not train in it."""
    inputs = gradients(plan, seed)
    ends = run(bucket_program(0, plan), inputs)[list(plan.workers)]
    exact = inputs[list(plan.workers)].astype(np.float64).mean(axis=0)
    assert np.allclose(ends[0], exact, atol=1e-5)
    assert all(np.array_equal(each, ends[0]) for each in ends), "replicas differ"


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(plans(update="owners"), st.integers(0, 2**32 - 1))
def test_values_of_owners_reach_everybody(plan, seed):
    """A shard's update would be lost, or come to some ranks alone: replicas would drift apart."""
    (bucket,) = plan.buckets
    both, inputs = halves(plan, 0), gradients(plan, seed)
    reduced = run(both.to_owners, inputs)
    exact = inputs[list(plan.workers)].astype(np.float64).mean(axis=0)
    values = np.random.default_rng(seed + 1).standard_normal(inputs.shape).astype(np.float32)
    expected = np.empty(bucket.elements, np.float32)
    by_rank = {owner.rank: owner.share for owner in bucket.route.owners}
    members = (
        *(rank for rank in bucket.order if rank in plan.workers),
        *(rank for rank in bucket.order if rank not in plan.workers),
    )
    units = np.cumsum([0, *(by_rank.get(rank, 0) for rank in members)])
    for rank, first, last in zip(members, units[:-1], units[1:], strict=True):
        part = slice(bucket.elements * first // units[-1], bucket.elements * last // units[-1])
        assert np.allclose(reduced[rank, part], exact[part], atol=1e-5)
        # A step of SGD with momentum, say: whatever only this rank knows.
        values[rank, part] -= np.float32(0.1) * (reduced[rank, part] + values[rank, part])
        expected[part] = values[rank, part]
    ends = run(both.from_owners, values)
    assert all(np.array_equal(ends[rank], expected) for rank in plan.workers)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    plans(update="owners"), st.lists(st.integers(0, 1000), min_size=1, max_size=3), st.integers(0, 2**32 - 1)
)
def test_values_of_a_bucket_in_pieces_reach_everybody(plan, cuts, seed):
    """A part of a gradient that lies away from its bucket's others would be updated by a rank that has not its mean."""
    (bucket,) = plan.buckets
    assume(bucket.elements)
    ends = [0, *sorted(min(cut, bucket.elements) for cut in cuts), bucket.elements]
    lengths = list(np.diff(ends))
    both, inputs = halves(plan, 0, lengths), gradients(plan, seed)
    pieces = [np.split(row.copy(), ends[1:-1]) for row in inputs]
    reference.run(both.to_owners, pieces)
    exact = inputs[list(plan.workers)].astype(np.float64).mean(axis=0)
    expected = np.random.default_rng(seed + 1).standard_normal(bucket.elements).astype(np.float32)
    values = np.zeros(inputs.shape, np.float32)
    for rank, start, stop in both.parts:
        assert np.allclose(np.concatenate(pieces[rank])[start:stop], exact[start:stop], atol=1e-5)
        values[rank, start:stop] = expected[start:stop]
    assert sum(stop - start for _, start, stop in both.parts) == bucket.elements
    pieces = [np.split(row, ends[1:-1]) for row in values]
    reference.run(both.from_owners, pieces)
    assert all(np.array_equal(np.concatenate(pieces[rank]), expected) for rank in plan.workers)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(plans())
def test_counted_elements_are_those_of_the_program(plan):
    """Plans over owners would be scored by other traffic than they make."""
    moved = defaultdict(int)
    program = bucket_program(0, plan)
    # Ranks beyond it have no part in the bucket.
    for rank in range(program.world):
        for op in program.ops(rank):
            if op["op"] == "send":
                moved[rank, op["peer"]] += op["src"][2] - op["src"][1]
    assert {pair: count for pair, count in sent(plan.buckets[0], plan.workers).items() if count} == moved


@pytest.mark.parametrize(
    ("hosts", "wire"),
    [(hosts, "tcp") for hosts in ("aaaa", "abcd", "aabb")] + [("abcd", wire) for wire in FABRICS],
)
def test_native_is_reference(hosts, wire):
    """What is verified and what runs would be two things."""
    # A program is of fewer ranks than the plan where the last ones have no part in it.
    jobs = {world: Job(list(hosts[:world]), wire) for world in range(1, len(hosts) + 1)}

    @settings(max_examples=20, database=None)
    @given(plans(world=len(hosts)), st.integers(0, 2**32 - 1))
    def check(plan, seed):
        inputs = np.random.default_rng(seed).standard_normal((plan.world, plan.buckets[0].elements))
        inputs = inputs.astype(np.float32)
        program = bucket_program(0, plan)
        found = [[row.copy()] for row in inputs]
        expected = run(program, inputs)
        jobs[program.world].run(program, found[: program.world])
        for rank in plan.workers:
            assert np.array_equal(expected[rank].view(np.uint32), found[rank][0].view(np.uint32))

    try:
        check()
    finally:
        for job in jobs.values():
            job.close()


def test_halves_of_other_shares_are_refused():
    """Owners would send values of parts whose gradients others have."""
    to, back = (
        owned_program(
            Shares(shares, 2),
            name=direction,
            world=2,
            direction=direction,
            elements=12,
            dtype="f32",
            op="sum",
            scale=1.0,
        )
        for shares, direction in (((1, 1), "to_owners"), ((1, 2), "from_owners"))
    )
    with pytest.raises(
        ProgramError, match=r"rank 0 is brought elements 0\.\.6, and 0\.\.4 are taken from rank 0"
    ):
        verify_halves(to, back)


@pytest.mark.parametrize(
    ("shares", "workers", "via"),
    [
        ((0, 0), 2, Direct()),
        ((1, 1), 3, Direct()),
        ((1, 1), 0, Direct()),
        ((1, 1), 2, TwoLevel(stations=(1,))),
        ((1, 1), 2, TwoLevel(stations=(2, 0))),
    ],
)
def test_owners_that_cannot_be_are_refused(shares, workers, via):
    """A damaged plan would become a program that loses gradients."""
    with pytest.raises(UsageError, match="owners: "):
        owned_parts(Shares(shares, workers, via), 4)


def test_a_bucket_with_one_program_has_no_halves():
    """An optimizer would run between programs that are none."""
    bucket = Bucket(
        parts=(), elements=4, dtype="f32", route=AllReduce(algorithm="ring"), order=(0, 1), priority=0
    )
    with pytest.raises(UsageError, match="bucket 0 has one program"):
        halves(plan_of([bucket], 2, label=""), 0)

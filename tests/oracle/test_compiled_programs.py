"""Whatever is chosen, a compiled program sums: on the reference executor, on the native one, and the same bits on both."""

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hocket import reference
from hocket._native import Program
from hocket.artefacts.plan import AllReduce, Bucket
from hocket.planning.buckets import plan_of
from hocket.planning.compile import all_reduce_program, broadcast_program, bucket_program
from hocket.reference.ops import STORED
from tests.support.engines import FABRICS, Job


@st.composite
def cases(draw, world_max=9):
    """(bucket, seed)."""
    world = draw(st.integers(1, world_max))
    elements = draw(st.sampled_from([0, 1, 2, 3, 7, 64, 101, 1000]))
    algorithm = draw(st.sampled_from(["ring", "direct", "in_place", "two_level"]))
    sizes = []
    if algorithm == "two_level":
        left = world
        while left:
            sizes.append(draw(st.integers(1, left)))
            left -= sizes[-1]
    codec = draw(st.sampled_from(["none", "f16", "bf16"]))
    pairs = [(a, b) for a in range(world) for b in range(world) if a != b]
    links = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs and codec != "none" else []
    bucket = Bucket(
        parts=(),
        elements=elements,
        dtype="f32",
        route=AllReduce(algorithm=algorithm, sizes=tuple(sizes)),
        order=tuple(draw(st.permutations(range(world)))),
        priority=0,
        codec=codec,
        codec_links=tuple(links),
        chunk_bytes=draw(st.sampled_from([16, 60, 4096])),
    )
    return bucket, draw(st.integers(0, 2**32 - 1))


def compiled(bucket):
    return bucket_program(0, plan_of([bucket], len(bucket.order), label=""))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_reference_sums(case):
    """Gradients would be wrong by the plan alone, before any byte moves."""
    bucket, seed = case
    world, elements = len(bucket.order), bucket.elements
    inputs = np.random.default_rng(seed).standard_normal((world, elements)).astype(np.float32)
    buffers = [[row.copy()] for row in inputs]
    reference.run(compiled(bucket), buffers)
    for (each,) in buffers:
        assert np.array_equal(each, buffers[0][0]), "replicas differ"
    exact = inputs.astype(np.float64).mean(axis=0)
    # One rounding to 11 or 8 bits per hop over an encoded link; sums themselves are f32.
    unit = {"none": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[bucket.codec]
    bound = 3 * world * unit * np.abs(inputs).sum(axis=0) + 1e-6
    assert np.all(np.abs(buffers[0][0] - exact) <= bound)


@settings(max_examples=100)
@given(cases())
def test_text_is_the_program(case):
    """A program that was printed, edited and read back would be another one."""
    text = str(compiled(case[0]))
    assert str(Program.parse(text)) == text


@pytest.mark.parametrize(
    ("hosts", "wire"),
    [(hosts, "tcp") for hosts in ("aaaa", "abcd", "aabb", "abab", "a", "aabcc")]
    + [(hosts, wire) for wire in FABRICS for hosts in ("abcd", "aabb")],
)
def test_native_is_reference(hosts, wire):
    """What is verified and what runs would be two things: the same bits, whichever links carry them."""
    job = Job(list(hosts), wire)
    world = len(hosts)

    @settings(max_examples=25, database=None)
    @given(cases(world_max=1), st.permutations(range(world)), st.data())
    def check(case, order, data):
        bucket, seed = case
        assume(bucket.route.algorithm != "in_place" or len(set(hosts)) == 1)
        sizes = (world,) if bucket.route.algorithm == "two_level" else ()
        if sizes and world > 1:
            cut = data.draw(st.integers(1, world - 1))
            sizes = (cut, world - cut)
        pairs = [(a, b) for a in range(world) for b in range(world) if a != b]
        links = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
        bucket = msgspec.structs.replace(
            bucket,
            route=AllReduce(algorithm=bucket.route.algorithm, sizes=sizes),
            order=tuple(order),
            codec_links=tuple(links),
        )
        program = compiled(bucket)
        inputs = np.random.default_rng(seed).standard_normal((world, bucket.elements)).astype(np.float32)
        expected = [[row.copy()] for row in inputs]
        found = [[row.copy()] for row in inputs]
        reference.run(program, expected)
        job.run(program, found)
        for rank in range(world):
            assert np.array_equal(expected[rank][0].view(np.uint32), found[rank][0].view(np.uint32))

    check()
    job.close()


FLOATS, INTEGERS = ("f64", "f32", "f16", "bf16"), ("i64", "i32", "i8", "u8")


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(op, dtype) for op in ("sum", "product", "min", "max") for dtype in FLOATS + INTEGERS]
    + [(op, dtype) for op in ("and", "or", "xor") for dtype in INTEGERS],
)
def test_every_type_and_reduction(dtype, op):
    """A model of another precision, or a counter, would be reduced wrongly."""
    rng = np.random.default_rng(7)
    if dtype in ("f64", "f32", "f16"):
        inputs = rng.integers(-8, 8, (3, 50)).astype(STORED[dtype])
    elif dtype == "bf16":
        inputs = (rng.integers(-8, 8, (3, 50)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        inputs = rng.integers(0, 20, (3, 50)).astype(STORED[dtype])
    program = all_reduce_program(
        world=3, elements=50, dtype=dtype, op=op, scale=1.0, route=AllReduce(algorithm="ring")
    )
    expected, found = ([[row.copy()] for row in inputs] for _ in range(2))
    reference.run(program, expected)
    job = Job(["a", "a", "b"])
    job.run(program, found)
    job.close()
    for rank in range(3):
        assert np.array_equal(expected[rank][0], found[rank][0])


@pytest.mark.parametrize(("world", "root"), [(1, 0), (2, 1), (5, 3), (8, 0)])
def test_broadcast_reaches_all(world, root):
    """Ranks would start from different parameters."""
    buffers = [[np.full(1001, rank, np.uint8)] for rank in range(world)]
    reference.run(broadcast_program(world, 1001, (root,), chunk_bytes=100), buffers)
    assert all((each == root).all() for (each,) in buffers)


@pytest.mark.parametrize(
    ("world", "sources", "targets"), [(4, (0, 2, 3), (1,)), (6, (1, 4), (0, 5)), (5, (0, 1, 2), (3, 4))]
)
def test_targets_get_a_part_from_each_source(world, sources, targets):
    """Newcomers would get less than the state, and ranks that have it would get it again."""
    whole = np.arange(1001, dtype=np.uint8)
    buffers = [[whole.copy() if rank in sources else np.zeros(1001, np.uint8)] for rank in range(world)]
    program = broadcast_program(world, 1001, sources, targets, chunk_bytes=100)
    reference.run(program, buffers)
    for rank, (each,) in enumerate(buffers):
        assert (each == (whole if rank in sources + targets else 0)).all(), rank
    sends = [sum(op["op"] == "send" for op in program.ops(rank)) for rank in range(world)]
    assert all(sends[rank] > 0 for rank in sources)

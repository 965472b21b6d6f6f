"""Rows of sparse gradients: gathered as many as there are, and added up; against NumPy, on both executors."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket import reference
from hocket._native import PassOptions, Program, run_kernel
from hocket.errors import ProgramError, UsageError
from hocket.reference.kernels import KERNELS
from hocket.reference.ops import STORED, cast
from tests.support.engines import Job

FLOATS = ("f64", "f32", "f16", "bf16")


def compiled(**changes) -> Program:
    settings = {
        "name": "rows",
        "algorithm": "ring",
        "elements": 3,
        "rows_max": 4,
        "dtype": "f32",
        "table": 10,
    }
    program = Program.gathered(**{**settings, **changes})
    program = program.compiled(PassOptions(chunk_bytes=1 << 20))
    program.verify()
    return program


def batches(world, rows_max, table, seed):
    """By rank, the numbers of the rows that it has: each once, none on some ranks."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, min(rows_max, table) + 1, world)
    return [np.sort(generator.choice(table, count, replace=False)) for count in counts]


def buffers(rank, numbers, values, *, world, rows_max, elements, dtype, table):
    """What a rank binds: its own block filled, all else what must not be read."""
    rows = np.full((world, rows_max, elements), 99, STORED[dtype])
    where, counts = np.full((world, rows_max), -7), np.full((world, 2), -7)
    rows[rank, : len(numbers)] = values
    where[rank, : len(numbers)] = numbers
    counts[rank] = len(numbers), len(numbers) * elements
    bound = [rows.reshape(-1), where.reshape(-1), counts.reshape(-1)]
    return [*bound, np.full(table * elements, 77, STORED[dtype])] if table else bound


def random_values(numbers, elements, dtype, seed):
    drawn = np.random.default_rng(seed).standard_normal((len(numbers), elements)).astype(np.float32)
    return cast(drawn.reshape(-1), "f32", dtype).reshape(len(numbers), elements)


def wide(values, dtype):
    return cast(values, dtype, "f64") if dtype != "f64" else values


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(
    world=st.integers(1, 6),
    algorithm=st.sampled_from(["ring", "direct"]),
    rows_max=st.integers(1, 5),
    elements=st.sampled_from([1, 3, 8]),
    dtype=st.sampled_from(FLOATS),
    table=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_table_is_the_sum_of_all_rows(*, world, algorithm, rows_max, elements, dtype, table, seed):
    """An embedding would miss rows of another rank, get them twice, or get what lay beyond a count."""
    sizes = {"world": world, "rows_max": rows_max, "elements": elements, "dtype": dtype, "table": table}
    numbers = batches(world, rows_max, table, seed)
    values = [random_values(each, elements, dtype, seed + rank) for rank, each in enumerate(numbers)]
    bound = [
        buffers(rank, mine, own, **sizes)
        for rank, (mine, own) in enumerate(zip(numbers, values, strict=True))
    ]
    reference.run(compiled(algorithm=algorithm, **sizes), bound)
    expected, magnitude = np.zeros((table, elements)), np.zeros((table, elements))
    for where, own in zip(numbers, values, strict=True):
        np.add.at(expected, where, wide(own.reshape(-1), dtype).reshape(own.shape))
        np.add.at(magnitude, where, np.abs(wide(own.reshape(-1), dtype).reshape(own.shape)))
    unit = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[dtype]
    found = wide(bound[0][3], dtype).reshape(table, elements)
    assert np.all(np.abs(found - expected) <= world * unit * magnitude + 2.0**-24)
    for each in bound:
        assert np.array_equal(each[3], bound[0][3]), "replicas differ"
        for rank, where in enumerate(numbers):
            block = each[1].reshape(world, rows_max)[rank]
            assert np.array_equal(block[: len(where)], where)
            assert np.array_equal(each[2].reshape(world, 2)[rank], (len(where), len(where) * elements))


@pytest.mark.parametrize("hosts", ["aaa", "abc", "aab"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_native_is_reference(hosts, dtype):
    """What is verified and what runs would be two things."""
    sizes = {"world": len(hosts), "rows_max": 5, "elements": 16, "dtype": dtype, "table": 9}
    job, program = Job(list(hosts)), compiled(**sizes)
    for seed in range(5):
        numbers = batches(len(hosts), 5, 9, seed)
        made = [
            [
                buffers(rank, where, random_values(where, 16, dtype, seed + rank), **sizes)
                for rank, where in enumerate(numbers)
            ]
            for _ in range(2)
        ]
        reference.run(program, made[0])
        job.run(program, made[1])
        for ours, theirs in zip(*made, strict=True):
            assert np.array_equal(ours[3], theirs[3])
            assert np.array_equal(ours[2], theirs[2])
    job.close()


def test_rows_alone_need_no_table():
    """A sparse gradient would cost a dense one."""
    sizes = {"world": 3, "rows_max": 2, "elements": 2, "dtype": "f32", "table": 0}
    numbers = [np.array([5]), np.array([], np.int64), np.array([5, 7])]
    values = [np.full((len(each), 2), rank, np.float32) for rank, each in enumerate(numbers)]
    bound = [
        buffers(rank, mine, own, **sizes)
        for rank, (mine, own) in enumerate(zip(numbers, values, strict=True))
    ]
    reference.run(compiled(**sizes), bound)
    rows = bound[1][0].reshape(3, 2, 2)
    assert np.array_equal(rows[0, :1], values[0])
    assert np.array_equal(rows[2], values[2])


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_kernel_is_its_definition(dtype):
    """Rows that come twice in a batch would count once, or in another order on another rank."""
    generator = np.random.default_rng(3)
    numbers, count = np.array([4, 0, 4, 4, 1, 2]), np.array([5])
    rows = cast(generator.standard_normal(6 * 33).astype(np.float32), "f32", dtype)
    ours, theirs = (cast(np.linspace(-1, 1, 5 * 33).astype(np.float32), "f32", dtype) for _ in range(2))
    name = f"scatter_add_rows.{dtype}"
    run_kernel(name, None, [rows.data, numbers.data, count.data], [ours.data], [33.0])
    KERNELS[name]([rows, numbers, count], [theirs], [33.0])
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("numbers", "count", "elements", "said"),
    [
        ([0, 5], 2, 4, "row 5 of 5"),
        ([-1, 0], 1, 4, "row -1 of 5"),
        ([0, 1], 3, 4, "3 rows of 2"),
        ([0, 1], -1, 4, "-1 rows of 2"),
        ([0, 1], 2, 3, "no rows of 3 elements"),
        ([0, 1], 2, 0, "no rows of 0 elements"),
        ([0, 1], 2, 5, "2 rows are more than 32 bytes"),
    ],
)
def test_rows_that_are_none_are_refused(numbers, count, elements, said):
    """A rank's damaged batch would write beyond the table of every other one."""
    arrays = [np.zeros(8, np.float32), np.array(numbers), np.array([count])]
    with pytest.raises((ProgramError, UsageError), match=said):
        run_kernel(
            "scatter_add_rows.f32",
            None,
            [each.data for each in arrays],
            [np.zeros(20, np.float32).data],
            [elements],
        )


def test_an_algorithm_that_gathers_nothing_is_refused():
    """A plan's rows would go nowhere."""
    with pytest.raises(ProgramError, match="two_level"):
        compiled(world=4, algorithm="two_level")

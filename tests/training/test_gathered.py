"""Rows of sparse gradients without a framework: blocks, sums of all ranks, and iterations that are reduced densely."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Gathered
from hocket.errors import PeerError
from hocket.planning.buckets import plan_of
from hocket.planning.rows import rows_bucket, sent
from hocket.training.memory.gathered import Rows, compile_rows
from tests.support.engines import TIMEOUT_S, Job

WORLD, TABLE, ROW, BOUND = 3, 30, 5, 6
ORDER = (1, 2, 0)
TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


class Held:
    """A framework with one gradient: `made` is what backward left, by number; `found` what `set_rows` was given."""

    def __init__(self, numbers, values):
        self.made = numbers, values
        self.found = None

    def rows(self, _name, factor):
        numbers, values = self.made
        part = np.ascontiguousarray(values * values.dtype.type(factor))
        return np.asarray(numbers, np.int64), part.reshape(len(numbers), ROW).view(np.uint8)

    def set_rows(self, _name, numbers, rows):
        self.found = numbers, rows.view(self.made[1].dtype).reshape(len(numbers), ROW)


def array(memory, start, dtype, shape):
    return np.frombuffer(memoryview(memory), TYPES[dtype], int(np.prod(shape)), start).reshape(shape)


@pytest.fixture(scope="module")
def job():
    with Job(["a", "b", "c"]) as job:
        yield job


class Ranks:
    """A gradient of all ranks of a job."""

    def __init__(self, job, *, sparse, dtype="f32", bound=BOUND):
        self.job = job
        gradient = Gradient("table", (TABLE, ROW), dtype, sparse=sparse)
        bucket = rows_bucket(gradient, ORDER, 0)
        route = Gathered(rows=bound, row_elements=ROW)
        self.plan = plan_of([type(bucket)(**{**_fields(bucket), "route": route})], WORLD, label="")
        compiled = compile_rows(self.plan, 0, gradient)
        self.views, self.rows, self.programs = {}, {}, {}

        def load(engine, rank):
            memory = engine.allocate(gradient.bytes)
            rows = Rows(compiled, engine, rank, memory, None)
            program = engine.load(compiled.programs.gathered, rows.bound, priority=0, label="rows")
            rows.load(priority=0, label="rows", cards=None)
            self.views[rank], self.rows[rank], self.programs[rank] = (
                array(memory, 0, dtype, (TABLE, ROW)),
                rows,
                program,
            )

        job.each(load)

    def step(self, held):
        """As a session does it: pack, gather, agree, and where a rank has too many rows, reduce densely."""

        def work(engine, rank):
            self.rows[rank].pack(held[rank])
            engine.launch(self.programs[rank])

        self.job.each(work)
        dense = any(each.exceeded for each in self.rows.values())

        def finish(engine, rank):
            engine.wait(self.programs[rank], TIMEOUT_S)
            if dense:
                self.rows[rank].begin_dense(0)
                engine.wait(self.rows[rank].program, TIMEOUT_S)
            self.rows[rank].finish(held[rank], dense=dense)

        self.job.each(finish)
        return dense


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def drawn(generator, dtype, counts):
    found = []
    for count in counts:
        numbers = np.sort(generator.choice(TABLE, count, replace=False))
        found.append(Held(numbers, generator.standard_normal((count, ROW)).astype(TYPES[dtype])))
    return found


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dtype", list(TYPES))
def test_rows_are_the_dense_mean(job, sparse, dtype):
    """Broken: rows of a rank would be lost, counted twice or left from the step before, or iterations with more rows than the bound
    would differ from the others."""
    ranks, generator = Ranks(job, sparse=sparse, dtype=dtype), np.random.default_rng(5)
    for counts in ([4, 6, 1], [0, 0, 0], [2, TABLE, 0], [BOUND + 1, 3, 3], [5, 5, 5], [0, 1, 0]):
        held = drawn(generator, dtype, counts)
        assert ranks.step(held) == (max(counts) > BOUND)
        mean = np.zeros((TABLE, ROW))
        for each in held:
            mean[each.made[0]] += each.made[1].astype(np.float64) / WORLD
        touched = sorted({int(number) for each in held for number in each.made[0]})
        rtol = {"f64": 1e-12, "f32": 1e-6, "f16": 5e-3}[dtype]
        for rank, each in enumerate(held):
            if sparse:
                numbers, rows = each.found
                assert numbers.tolist() == touched
                assert rows.tobytes() == held[0].found[1].tobytes(), "replicas differ"
            else:
                assert each.found is None
                numbers, rows = np.arange(TABLE), ranks.views[rank]
                assert rows.tobytes() == ranks.views[0].tobytes(), "replicas differ"
            np.testing.assert_allclose(rows, mean[numbers], rtol=rtol, atol=rtol)


def test_ranks_send_their_own_rows_alone(job):
    """Broken: blocks would be padded to the bound, or a plan would be chosen by other traffic than it makes."""
    ranks, generator = Ranks(job, sparse=True), np.random.default_rng(6)
    for counts in ([4, 6, 1], [0, 0, 0], [0, 5, 0]):
        before = [engine.bytes_sent() for engine in job.engines]
        ranks.step(drawn(generator, "f32", counts))
        expected = sent(ranks.plan.buckets[0], counts)
        for source, engine in enumerate(job.engines):
            for destination, total in enumerate(engine.bytes_sent()):
                moved = total - before[source][destination]
                assert moved == expected.get((source, destination), 0), (counts, source, destination)


def test_a_rank_whose_rows_are_none_of_the_table_is_named(job):
    """Broken: its numbers would be taken for places in memory."""
    ranks = Ranks(job, sparse=True)
    held = drawn(np.random.default_rng(7), "f32", [2, 2, 2])
    for numbers in ([0, TABLE], [-1, 3]):
        held[2].made = np.array(numbers), held[2].made[1]

        def work(engine, rank):
            ranks.rows[rank].pack(held[rank])  # joined before the next turn
            engine.launch(ranks.programs[rank])
            engine.wait(ranks.programs[rank], TIMEOUT_S)
            with pytest.raises(PeerError, match="rank 2 sent 2 rows of 10 elements for `table`, or rows"):
                ranks.rows[rank].finish(held[rank], dense=False)

        job.each(work)


@pytest.mark.parametrize("count", [BOUND + 1, -1, 1 << 62])
def test_a_count_that_is_none_ends_the_job_by_name(count):
    """Broken: a rank's damaged count would have others write beyond their memory, or wait for ever."""
    with Job(["a", "b", "c"]) as job:
        ranks = Ranks(job, sparse=True)
        held = drawn(np.random.default_rng(8), "f32", [1, 1, 1])

        def work(engine, rank):
            ranks.rows[rank].pack(held[rank])
            if rank == 1:
                memory, _ = ranks.rows[rank].bound[2]
                np.frombuffer(memoryview(memory), np.int64)[: 2 * WORLD].reshape(WORLD, 2)[0, 0] = count
            with pytest.raises(PeerError, match=f"the count of a message of {BOUND} elements is {count}"):
                engine.launch(ranks.programs[rank])
                engine.wait(ranks.programs[rank], TIMEOUT_S)

        job.each(work)

"""Random policies, worlds, chunkings and element types: native = reference, bit for bit, over several launches."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket import reference
from hocket.policies import READY_MADE
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, bucket_program
from hocket.reference.ops import STORED, cast
from tests.support.engines import TIMEOUT_S, Job

STEPS = (
    "scale",
    "clamp",
    "exchange",
    "all_reduce",
    "reduce_scatter",
    "broadcast",
    "cast",
    "state",
    "variable",
    "local",
)


@st.composite
def scripts(draw):
    """What a random policy does, as data: the same on every rank."""
    step = st.tuples(
        st.sampled_from(STEPS), st.integers(0, 9), st.sampled_from(["ring", "direct", "halving_doubling"])
    )
    return draw(st.lists(step, min_size=1, max_size=6))


class Scripted(Policy):
    contract = "none"

    def __init__(self, script):
        self.script = script

    def on_buffer_ready(self, cx, buffer):
        for what, number, algorithm in self.script:
            getattr(self, f"do_{what}")(cx, buffer, number, algorithm)

    def do_scale(self, cx, b, number, _how):
        cx.scale(b, 0.5 + number)

    def do_clamp(self, cx, b, number, _how):
        if b.dtype in ("f32", "f64"):
            cx.clamp(b, -1.0 - number, 1.0 + number, into=b)

    def do_exchange(self, cx, b, number, _how):
        """Everybody to the next but `number`, through scratch, in f16 where that is smaller."""
        hop = 1 + number % max(1, cx.world - 1)
        if cx.world == 1:
            return
        there, back = (cx.rank + hop) % cx.world, (cx.rank - hop) % cx.world
        wire = "f16" if b.dtype == "f32" and number % 2 else None
        got = cx.alloc(len(b), b.dtype)
        cx.send(b, there, wire=wire)
        cx.recv(got, back, wire=wire)
        cx.reduce(got, b, "max" if number % 3 == 0 else "sum")

    def do_all_reduce(self, cx, b, number, how):
        cx.all_reduce(b, op=("sum", "mean", "min", "max")[number % 4], algorithm=how)

    def do_reduce_scatter(self, cx, b, _number, how):
        how = "ring" if how == "halving_doubling" else how
        cx.reduce_scatter(b, op="mean", algorithm=how)
        cx.all_gather(b, algorithm=how)

    def do_broadcast(self, cx, b, number, how):
        cx.broadcast(b, number % cx.world, algorithm=how)

    def do_cast(self, cx, b, _number, how):
        if b.dtype == "f32":
            half = cx.cast(b, "bf16")
            cx.all_reduce(half, op="mean", algorithm=how)
            cx.cast(half, "f32", into=b)

    def do_state(self, cx, b, number, _how):
        kept = cx.state(f"kept{number}", like=b)
        cx.reduce(b, kept)
        cx.copy(kept, into=b)

    def do_variable(self, cx, b, number, _how):
        if b.dtype != "f32":
            return
        k = 1 + number % len(b)
        values, indices, count = cx.alloc(k), cx.alloc(k, "i32"), cx.alloc(1, "i64")
        cx.apply("top_k.f32", [b], [values, indices, count])
        for (theirs, where), many in cx.all_gather_variable([values, indices], count):
            cx.apply("scatter_add.f32", [theirs, where, many], [b])

    def do_local(self, cx, b, number, _how):
        cx.add(b[: len(b) // 2], b[len(b) - len(b) // 2 :], into=b[: len(b) // 2])
        cx.scale(b, 1 / (1 + number))


def run_native(job, program, inputs, launches):
    memories, numbers = [], []
    for engine, values in zip(job.engines, inputs, strict=True):
        memories.append(engine.allocate(max(1, values.nbytes)))

    def load(engine, rank):
        numbers.append((rank, engine.load(program, {0: (memories[rank], 0)}, priority=0, label=program.name)))

    job.each(load)
    number = dict(numbers)
    results = []
    for _ in range(launches):
        for memory, values in zip(memories, inputs, strict=True):
            memoryview(memory)[: values.nbytes] = values.tobytes()

        def work(engine, rank):
            engine.launch(number[rank])
            engine.wait(number[rank], TIMEOUT_S)

        job.each(work)
        results.append(
            [np.frombuffer(m, v.dtype, count=v.size).copy() for m, v in zip(memories, inputs, strict=True)]
        )
    job.each(lambda engine, rank: engine.unload(number[rank]))
    return results


def run_reference(program, inputs, launches):
    state, results = {}, []
    for _ in range(launches):
        buffers = [[each.copy()] for each in inputs]
        reference.run(program, buffers, state=state)
        results.append([each for (each,) in buffers])
    return results


def agree(policy, job, *, elements, dtype, chunk_bytes, seed, racks=1, **agreed):
    world = len(job.engines)
    tensor = Gradient("g", (elements,), dtype, 0, 0)
    context = TraceContext.of(
        policy, Topology.even(world=world, racks=racks), {"chunk_bytes": chunk_bytes, **agreed}
    )
    program = bucket_program(policy, Bucket((tensor,), 0), context).program
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((world, elements)).astype(np.float64 if dtype == "f64" else np.float32)
    inputs = [cast(each, "f64" if dtype == "f64" else "f32", dtype).astype(STORED[dtype]) for each in values]
    native = run_native(job, program, inputs, 2)
    for ours, theirs in zip(native, run_reference(program, inputs, 2), strict=True):
        for left, right in zip(ours, theirs, strict=True):
            # Bits; a NaN's payload alone is free.
            same = left.tobytes() == right.tobytes()
            assert same or np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


def check_on(job, cases):
    @settings(max_examples=40, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(cases)
    def check(case):
        script, elements, dtype, chunk_bytes, seed = case
        agree(Scripted(script), job, elements=elements, dtype=dtype, chunk_bytes=chunk_bytes, seed=seed)

    check()


def test_random_policies():
    """The executor that moves real data would not do what was verified."""
    cases = st.tuples(
        scripts(),
        st.sampled_from([1, 5, 64, 333]),
        st.sampled_from(["f32", "f64", "f16"]),
        st.sampled_from([64, 4096]),
        st.integers(0, 99),
    )
    for hosts in (("a",) * 3, ("a", "a", "b"), ("a", "b", "c", "d", "e")):
        job = Job(hosts)
        try:
            check_on(job, cases)
        finally:
            job.close()


def test_ready_made_policies():
    job = Job(("a", "a", "b", "b"))
    try:
        for name, policy in READY_MADE.items():
            if name == "power_sgd":
                continue  # its sums of products are taken in another order: tests/policies/test_kernels.py has the bound
            agree(policy(), job, elements=301, dtype="f32", chunk_bytes=256, seed=3)
            if "levels" in policy.parameters:
                agree(policy(), job, elements=301, dtype="f32", chunk_bytes=256, seed=3, racks=2, levels=2)
    finally:
        job.close()

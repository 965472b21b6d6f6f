"""The hook of a gradient as autograd calls it; the counting itself is tested in `crates/executor/src/readiness/tests.rs`."""

import time

import numpy as np
import pytest

from hocket import Policy, _native
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.errors import PeerError, UsageError
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, bucket_program
from tests.engine.test_completion import ELEMENTS, load, program
from tests.support.engines import TIMEOUT_S, Job


class Parameter:
    def __init__(self, grad):
        self.grad = grad


class Buckets:
    """One bucket of two gradients and one of one, in a world of one; notes what the hooks call."""

    def __init__(self, engine):
        self.calls = []
        self.views = [object() for _ in range(3)]
        self.readiness = _native.Readiness(
            engine,
            [(load(engine, world=1)[0], 2, 0), (load(engine, world=1)[0], 1, 1)],
            lambda: self.calls.append("first"),
            lambda bucket, index, _parameter: self.calls.append(("adopt", bucket, index)),
            lambda bucket, index: self.calls.append(("twice", bucket, index)),
            lambda error: self.calls.append(("refused", error)),
        )
        places = [(0, 0), (0, 1), (1, 0)]
        self.hooks = [
            self.readiness.hook([place], view) for place, view in zip(places, self.views, strict=True)
        ]

    def come(self, *gradients):
        for at in gradients:
            self.hooks[at](Parameter(self.views[at]))

    def apply(self):
        for bucket in (0, 1):
            self.readiness.wait(bucket, TIMEOUT_S)
            self.readiness.applied(bucket)


@pytest.fixture
def job():
    with Job(["a"]) as job:
        yield job


@pytest.fixture
def buckets(job):
    return Buckets(job.engines[0])


def test_ready_launched_and_applied(buckets):
    """A session would wait for what was not launched, or write into what is under way."""
    assert buckets.readiness.progress(0) == (0, 0, 0)
    buckets.come(1)
    assert buckets.readiness.missing() == [(0, 0), (1, 0)]
    buckets.come(0)
    assert buckets.readiness.order() == [(0, 1), (0, 0)]
    assert buckets.readiness.progress(0) == (1, 1, 0)
    buckets.readiness.finish()
    assert buckets.readiness.progress(1) == (1, 1, 0)
    buckets.apply()
    assert buckets.readiness.progress(0) == (1, 1, 1)
    with pytest.raises(UsageError, match="nothing of arena 0 is left to apply"):
        buckets.readiness.applied(0)
    assert buckets.calls == ["first"]


def test_a_backward_before_the_last_was_applied(buckets):
    """Gradients of the new backward would be added to those that are being reduced."""
    buckets.come(0, 1, 2)
    buckets.readiness.finish()
    with pytest.raises(UsageError, match="before what bucket 0 reduced was applied"):
        buckets.come(0)


def test_gradients_elsewhere_again_and_uncounted(buckets):
    """Gradients would be lost: made elsewhere, added after the launch, or counted while they only accumulate."""
    buckets.readiness.enabled = False
    buckets.hooks[0](Parameter(object()))
    assert buckets.calls == [("adopt", 0, 0)]
    buckets.readiness.enabled = True
    buckets.come(2, 2)
    assert buckets.calls == [("adopt", 0, 0), "first", ("twice", 1, 0)]
    buckets.come(0, 0)
    assert buckets.calls[3:] == []
    with pytest.raises(UsageError, match="no gradient 2 in bucket 0"):
        buckets.readiness.hook([(0, 2)], None)


def test_a_launch_that_fails(buckets, job):
    """A rank that died would show only at the next wait, without the session's explanation."""
    job.engines[0].abort("out of memory")
    with pytest.raises(PeerError, match="out of memory"):
        buckets.come(2)
    assert isinstance(buckets.calls[1][1], PeerError)


def test_an_error_of_a_callback_is_the_error_of_backward(job):
    """A check in a callback would not stop backward."""
    engine = job.engines[0]

    def refuse():
        raise UsageError("a forked child")

    readiness = _native.Readiness(
        engine, [(load(engine, world=1)[0], 1, 0)], refuse, np.copyto, np.copyto, np.copyto
    )
    view = object()
    with pytest.raises(UsageError, match="a forked child"):
        readiness.hook([(0, 0)], view)(Parameter(view))


def test_gradients_go_where_the_open_turn_is(job):
    """Merged gradients would be added to a bucket that is on its way, or counted as if they were of one iteration."""
    engine = job.engines[0]
    memories = [engine.allocate(4 * ELEMENTS) for _ in range(2)]
    number = engine.load(
        program(1), {0: (memories[0], 0)}, priority=0, label="bucket", others=[{0: (memories[1], 0)}]
    )
    values = [np.frombuffer(memoryview(memory), np.float32)[:ELEMENTS] for memory in memories]
    views, calls = [object(), object()], []
    # Turns of two iterations, applied one later.
    turn = Turn(first=0, last=1, due=Due(iteration=2))
    readiness = _native.Readiness(
        engine,
        [(number, 1, 0)],
        lambda: calls.append("first"),
        lambda *_: calls.append("adopt"),
        print,
        print,
        Schedule(period=2, turns=((turn,),), delay_max=1),
    )
    hook = readiness.hook([(0, 0)], views[0], views[1:])
    for iteration in range(6):
        slot = readiness.open(0).slot
        assert slot == iteration // 2 % 2
        values[slot][:] += 1
        hook(Parameter(views[slot]))
        readiness.finish()
        readiness.begin()
        if iteration in (2, 4):
            readiness.wait(0, TIMEOUT_S)
            assert values[1 - slot].tolist() == [1.0] * ELEMENTS
            values[1 - slot][:] = 0
            readiness.applied(0)
    assert calls == ["first"] * 6
    hook(Parameter(views[0]))
    assert calls == ["first"] * 6 + ["adopt", "first"], "the fourth turn is in the second slot"


def test_schedules_that_cannot_be_kept(job):
    """A slip would be gradients that never leave."""
    engine = job.engines[0]
    number, _ = load(engine, world=1)
    for turn, said in (
        (Turn(first=0, last=0, due=Due(iteration=1)), "2 slots for bucket 0; its program has 1"),
        (Turn(first=0, last=0, due=Due(iteration=2)), "bucket 0: 3 turns are open at the same time"),
        (Turn(first=0, last=-1, due=Due(iteration=0)), "invalid value"),
    ):
        schedule = Schedule(turns=((turn,),), delay_max=2)
        with pytest.raises(UsageError, match=said):
            _native.Readiness(engine, [(number, 1, 0)], print, print, print, print, schedule)


class RoundsEach(Policy):
    """Policy that rounds each gradient, then adds up the bucket."""

    contract = "same"

    def on_tensor_ready(self, cx, grad):
        cx.cast(cx.cast(grad, "f16"), "f32", into=grad)
        cx.enqueue(grad)

    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean")


def test_a_gradient_is_worked_on_before_the_others_are_there():
    """Work on gradients would begin when backward has ended, where nothing hides it."""
    lens = (3, 5)
    bucket = Bucket(
        tuple(Gradient(str(at), (each,), "f32", at, at) for at, each in enumerate(lens)), priority=0
    )
    policy = RoundsEach()
    traced = bucket_program(policy, bucket, TraceContext.of(policy, Topology.of(["a", "b"])))
    assert traced.by_gradient
    with Job(["a", "b"]) as job:
        ranks = []
        for engine in job.engines:
            memory = engine.allocate(4 * sum(lens))
            number = engine.load(
                traced.program, {0: (memory, 0)}, priority=0, label="bucket", gradients=list(lens)
            )
            readiness = _native.Readiness(engine, [(number, 2, 0)], *(lambda *_: None,) * 4)
            views = object(), object()
            hooks = [readiness.hook([(0, at)], view) for at, view in enumerate(views)]
            ranks.append((np.frombuffer(memoryview(memory), np.float32), readiness, hooks, views))
        third = np.float32(1) / 3
        for step in range(3):
            for values, *_, hooks, views in ranks:
                values[:] = third
                hooks[1](Parameter(views[1]))
                deadline_s = time.monotonic() + TIMEOUT_S
                while values[7] != np.float16(third):
                    assert time.monotonic() < deadline_s, "the gradient that came is not worked on"
                    time.sleep(1e-3)
                assert values[:3].tolist() == [third] * 3, "a gradient is worked on before it is there"
            for values, readiness, hooks, views in ranks:
                values[:3] = 2 * third
                if step < 2:
                    hooks[0](Parameter(views[0]))
                readiness.finish()
            for values, readiness, *_ in ranks:
                readiness.wait(0, TIMEOUT_S)
                readiness.applied(0)
                assert values.tolist() == [np.float16(2 * third)] * 3 + [np.float16(third)] * 5

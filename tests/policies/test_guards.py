"""What a trace took for granted is noticed when it changes; what did not decide anything is not."""

import inspect

import pytest

from hocket.errors import PolicyError
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.observed import Assumptions, agree
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, bucket_program, layout


def traced(policy, snapshot):
    context = TraceContext.of(policy, Topology.even(world=2), snapshot=snapshot)
    return bucket_program(policy, Bucket((Gradient("g", (40,), "f32", 0, 0),), 0), context)


def at(*wait_s):
    return [{"wait_time": [each]} for each in wait_s]


class ByWait(Policy):
    def on_buffer_ready(self, cx, buffer):
        slow = cx.negotiate(cx.get("wait_time"), how="max") > 0.5
        cx.all_reduce(buffer, op="mean", algorithm="direct" if slow else "ring")


def test_a_decision_that_falls_otherwise_breaks_its_guard():
    """The program would stay as it was when the network became slow."""
    made = traced(ByWait(), at(0.1, 0.2))
    assert all(guard.holds(at(0.1, 0.2)) for guard in made.guards)
    assert all(guard.holds(at(0.4, 0.3)) for guard in made.guards), "another value, the same decision"
    assert not all(guard.holds(at(0.1, 0.7)) for guard in made.guards), "the slowest rank decides"
    assert str(made.program) != str(traced(ByWait(), at(0.1, 0.7)).program)


def test_a_policy_that_looks_at_nothing_has_no_guards():
    """It would be traced again and again."""
    assert traced(Policy(), at(0.1, 0.2)).guards == ()


@pytest.mark.parametrize(
    ("decide", "same", "other"),
    [
        (lambda x: x > 1, 1.5, 0.5),
        (lambda x: x <= 2 * x - 2, 3.0, 1.0),
        (lambda x: (x + 1) / 2 == 1.5, 2.0, 3.0),
        (int, 2.9, 3.0),
        (lambda x: bool(x - 2), 5.0, 2.0),
        (lambda x: 10 - x > 5, 3.0, 6.0),
        (round, 2.4, 2.6),
        (lambda x: round(x, 1), 2.04, 2.06),
        (lambda x: abs(x - 2) < 1, 1.5, 3.5),
        (lambda x: x // 2 == 1, 3.9, 4.1),
        (lambda x: 2**x > 5, 2.5, 2.0),
        (lambda x: f"{x:.0f}", 2.4, 2.6),
    ],
)
def test_derived_numbers_are_guarded(decide, same, other):
    """Arithmetic would hide a decision; or each new value would be another decision."""
    assumptions = Assumptions([{"x": [2.0 if other != 2.0 else 3.0]}])
    decide(assumptions.observe(lambda snapshot: snapshot[0]["x"][0]))
    assert all(guard.holds([{"x": [same]}]) for guard in assumptions.guards)
    assert not all(guard.holds([{"x": [other]}]) for guard in assumptions.guards)


def by(handler, on_tensor_ready=Policy.on_tensor_ready):
    """A policy that promises nothing, with these handlers."""
    made = type("By", (Policy,), {"contract": "none", "on_tensor_ready": on_tensor_ready})
    made.on_buffer_ready = handler
    return made()


def with_default(cx, buffer, *, by=1.0):
    cx.scale(buffer, by)


LEAVES = {
    "a constant": lambda self, cx, b: cx.scale(b, 1 + cx.negotiate(cx.get("wait_time"), how="max")),
    "a keyword": lambda self, cx, b: with_default(cx, b, by=cx.get("wait_time") / 3),
    "limits": lambda self, cx, b: cx.clamp(b, -cx.get("wait_time"), cx.get("wait_time"), into=b),
    "a fill": lambda self, cx, b: cx.fill(b, cx.get("wait_time")),
    "a kernel's constant": lambda self, cx, b: cx.apply("fill.f32", [], [b], cx.get("wait_time") ** 2),
    "a name": lambda self, cx, b: cx.state(f"of {cx.get('wait_time'):.1f}", b),
    "a length": lambda self, cx, b: cx.fill(cx.alloc(int(10 * cx.get("wait_time"))), 0),
    "a slice": lambda self, cx, b: cx.scale(b[: round(10 * cx.get("wait_time"))], 2),
    "a key": lambda self, cx, b: cx.scale(b, {0.1: 2.0}.get(cx.get("wait_time"), 3.0)),
    "a member": lambda self, cx, b: cx.scale(b, 2 if cx.get("wait_time") in (0.1, 0.2) else 3),
    "a loop": lambda self, cx, b: [cx.scale(b, 2) for _ in range(int(10 * cx.get("wait_time")))],
    "an error that is caught": lambda self, cx, b: cx.scale(b, caught(cx.get("wait_time") - 0.1)),
}


def caught(number):
    try:
        return 1 / number and 2.0
    except ZeroDivisionError:
        return 3.0


@pytest.mark.parametrize("use", LEAVES)
def test_whatever_reaches_a_program_is_guarded(use):
    """The program would keep a number of an hour ago."""
    policy = by(LEAVES[use])
    before, after = at(0.1, 0.1), at(0.9, 0.9)
    made = traced(policy, before)
    assert str(made.program) != str(traced(policy, after).program), "the test has to tell them apart"
    assert all(guard.holds(before) for guard in made.guards)
    assert not all(guard.holds(after) for guard in made.guards)


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda self, cx, grad: cx.enqueue(grad, priority=10 * cx.get("wait_time")),
        lambda self, cx, grad: cx.enqueue(grad) if cx.get("wait_time") < 0.5 else None,
        lambda self, cx, grad: cx.enqueue(
            grad, priority=int(cx.negotiate(cx.rank + cx.get("wait_time"), "max"))
        ),
    ],
)
def test_what_decides_the_queue_is_guarded(enqueue):
    """A gradient that was left out, or its priority, would stay as it was for good."""
    policy = by(lambda self, cx, buffer: None, enqueue)
    tensors = [Gradient("g", (40,), "f32", 0, 0)]
    before, after = (
        layout(policy, tensors, TraceContext.of(policy, Topology.even(world=2), snapshot=at(each, each)))
        for each in (0.1, 2.1)
    )
    assert before.buckets != after.buckets
    assert all(guard.holds(at(0.1, 0.1)) for guard in before.guards)
    assert not all(guard.holds(at(2.1, 2.1)) for guard in before.guards)


class KeepsTheNumber(Policy):
    def on_buffer_ready(self, cx, buffer):
        self.__dict__.setdefault("kept", []).append(cx.get("wait_time"))
        cx.all_reduce(buffer, op="mean", algorithm="direct" if self.kept[0] > 0.5 else "ring")


class KeepsTheDecision(Policy):
    def on_buffer_ready(self, cx, buffer):
        if not hasattr(self, "slow"):
            self.slow = bool(cx.get("wait_time") > 0.5)
        cx.all_reduce(buffer, op="mean", algorithm="direct" if self.slow else "ring")


class KeepsTheContext(Policy):
    def on_buffer_ready(self, cx, buffer):
        self.__dict__.setdefault("kept", cx)
        slow = self.kept.get("wait_time") > 0.5
        cx.all_reduce(buffer, op="mean", algorithm="direct" if slow else "ring")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (KeepsTheNumber, "uses a statistic, or a `cx`, that was kept from another call"),
        (KeepsTheContext, "uses a statistic, or a `cx`, that was kept from another call"),
        (KeepsTheDecision, "KeepsTheDecision keeps `slow` after it looked at statistics"),
    ],
)
def test_what_is_kept_for_a_later_epoch_is_refused(policy, message):
    """The next epoch would decide by the last one's statistics, unguarded."""
    one = policy()
    with pytest.raises(PolicyError, match=message) as raised:
        for _ in range(2):
            traced(one, at(0.1, 0.1))
    line = inspect.getsourcelines(policy)[1]
    assert raised.value.file == __file__
    assert line < raised.value.line <= line + 6, "the user's line"


def test_what_handlers_store_without_statistics_is_theirs():
    """A policy that counts its calls would be refused for nothing."""

    class Counts(Policy):
        calls = 0

        def on_buffer_ready(self, cx, buffer):
            self.calls += 1
            super().on_buffer_ready(cx, buffer)

    policy = Counts()
    assert traced(policy, at(0.1, 0.1)).guards == ()
    assert policy.calls == 2


@pytest.mark.parametrize(("how", "result"), [("mode", 2.0), ("min", 1.0), ("max", 5.0), ("leader", 5.0)])
def test_agreement(how, result):
    """Ranks would take different values."""
    assert agree([5.0, 2.0, 1.0, 2.0], how) == result

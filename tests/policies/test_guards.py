"""What a trace took for granted is noticed when it changes; what did not decide anything is not."""

import pytest

from hocket.tracing.observed import Observed, agree
from hocket.tracing.policy import Policy
from hocket.tracing.topology import Topology
from hocket.tracing.trace import Fused, Scene, Tensor, bucket_program


def traced(policy, snapshot):
    scene = Scene.of(policy, Topology.even(world=2), snapshot=snapshot)
    return bucket_program(policy, Fused((Tensor("g", (40,), "f32", 0, 0),), 0), scene)


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
        (lambda x: 10 - x > 5 if isinstance(10 - x, Observed) else x < 5, 3.0, 6.0),
    ],
)
def test_derived_numbers_are_guarded(decide, same, other):
    """Arithmetic would hide a decision."""
    guards = []
    number = Observed.of(
        lambda snapshot: snapshot[0]["x"][0], [{"x": [2.0 if other != 2.0 else 3.0]}], guards, "here"
    )
    decide(number)
    assert guards
    assert all(guard.holds([{"x": [same]}]) for guard in guards)
    assert not all(guard.holds([{"x": [other]}]) for guard in guards)


@pytest.mark.parametrize(("how", "result"), [("mode", 2.0), ("min", 1.0), ("max", 5.0), ("leader", 5.0)])
def test_agreement(how, result):
    """Ranks would take different values."""
    assert agree([5.0, 2.0, 1.0, 2.0], how) == result

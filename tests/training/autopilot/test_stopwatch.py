"""What the session tells its autopilot of steps, on a clock of the test's."""

from types import SimpleNamespace

import msgspec
import pytest

from hocket import _native
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.training.autopilot import stopwatch
from hocket.training.autopilot.stopwatch import STEPS, WARM_UP_STEPS, Stopwatch, profile_of
from hocket.training.step.delays import Delays

MS = 1_000_000


class Clock:
    def __init__(self, monkeypatch):
        self.now_ns = 5 * MS
        monkeypatch.setattr(stopwatch._native, "now_ns", lambda: self.now_ns)

    def pass_ms(self, time_ms):
        self.now_ns += time_ms * MS


def step(clock, watch, epoch, *, slow_ms=0):
    """1 ms of the optimizer, 4 of forward, 10 of backward, whose gradients come after 3 and 9, and 5 of waiting."""
    clock.pass_ms(1)
    watch.stepped()
    clock.pass_ms(4)
    wanted = watch.began()
    clock.pass_ms(10 + slow_ms)
    ready = {"b": clock.now_ns - 7 * MS, "a": clock.now_ns - MS} if wanted else {}
    watch.computed(ready, {"rows": watch.step})
    clock.pass_ms(5)
    watch.ended(epoch)


def test_a_profile_is_of_whole_steps_after_the_first(monkeypatch):
    """The planner would overlap communication with a backward that is not there."""
    assert _native.now_ns() > 0
    clock, watch = Clock(monkeypatch), Stopwatch()
    for at in range(WARM_UP_STEPS + STEPS):
        assert watch.times() is None
        step(clock, watch, 0, slow_ms=100 if at < WARM_UP_STEPS else 0)
    times = watch.times()
    assert (times.optimizer_s, times.forward_s, times.backward_s) == pytest.approx((1e-3, 4e-3, 10e-3))
    assert times.ready_s == pytest.approx({"b": 7e-3, "a": 13e-3})
    assert times.touched == {"rows": WARM_UP_STEPS + STEPS // 2}
    gradients = [Gradient("rows", (100, 2), "f32", sparse=True), Gradient("a", (3,), "f32")]
    more = msgspec.structs.replace(times, touched={"rows": 7.5})
    profile = profile_of([times, more], gradients, "", 2)
    assert [(each.sparse, each.touched) for each in profile.gradients] == [(True, 8), (False, None)]
    assert not watch.began()
    watch.again()
    assert watch.times() is None
    assert watch.began()


def test_steps_in_which_programs_are_loaded_are_left_out(monkeypatch):
    """A new plan would be judged by the step that loads it, or by steps of the plan before."""
    clock, watch = Clock(monkeypatch), Stopwatch()
    for _ in range(3):
        step(clock, watch, 0)
    assert watch.take() == [(0, pytest.approx(20e-3))] * 2
    step(clock, watch, 1)
    assert (watch.epoch, watch.epoch_began, watch.step) == (1, 4, 4)
    step(clock, watch, 1, slow_ms=50)
    step(clock, watch, 1)
    assert watch.take() == [(1, pytest.approx(20e-3))]
    assert watch.take() == []


def test_steps_by_which_a_session_learns_are_left_out(monkeypatch):
    """A plan with late gradients would be judged by the synchronous iterations with which its epoch begins."""
    clock, watch = Clock(monkeypatch), Stopwatch()
    late = Schedule(turns=((Turn(first=0, last=0, due=Due(iteration=1)),),), delay_max=1)
    for _ in range(3):
        step(clock, watch, 0)
    watch.scheduled(Schedule(), counts=False, retreated=False)
    for _ in range(3):
        step(clock, watch, 0)
    assert watch.take() == []
    assert not watch.schedule.turns
    watch.scheduled(late, counts=True, retreated=False)
    step(clock, watch, 0)
    assert watch.take() == [(0, pytest.approx(20e-3))]
    assert watch.schedule == late


@pytest.mark.parametrize(("grows", "taken"), [(True, 0), (False, 1)])
def test_steps_are_no_measure_while_ranks_try_how_many_they_bear(monkeypatch, grows, taken):
    """Broken: a trial of steps alone would compare those of its begin, with an exchange after few, and leave a plan that is
    faster."""
    clock, watch = Clock(monkeypatch), Stopwatch()
    plan = SimpleNamespace(schedule=Local(every=30).schedule(1))
    delays = SimpleNamespace(
        _updates=SimpleNamespace(schedule=Local(every=7).schedule(1)),
        sentinel=None,
        drift=SimpleNamespace(grows=lambda _: grows),
        retreated=False,
    )
    for _ in range(2):
        step(clock, watch, 0)
    Delays.tell(delays, watch, plan)
    step(clock, watch, 0)
    assert len(watch.take()) == taken
    assert not watch.retreated

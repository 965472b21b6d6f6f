"""Iterations with merged or late gradients, as the pilot counts them."""

from statistics import fmean

import pytest

from hocket.artefacts.local import Local
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.training.autopilot.pace import SPAN_MAX, Pace


def merged(count, delay=0):
    """An update of so many iterations, so many late."""
    turns = (Turn(first=0, last=count - 1, due=Due(iteration=count - 1 + delay)),)
    return Schedule(period=count, turns=(turns,), delay_max=delay)


def test_every_step_of_a_plan_without_turns_counts():
    """A job without merged gradients would be watched otherwise than before."""
    pace = Pace()
    assert pace.of(0, Schedule(), [1.0, 2.0]) == (1.0, 2.0)
    assert pace.of(1, Schedule(overlap="gates"), [3.0]) == (3.0,)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_any_steps_are_as_long_as_a_period_says(count):
    """Medians of steps would be those that wait for nothing: a plan would seem faster than it is, and be kept."""
    long = [1.0] * (count - 1) + [1.0 + count]
    found = Pace().of(1, merged(count), long * 6)
    assert found == pytest.approx([fmean(long)] * (6 * count - 2 * count + 1))


def test_what_links_do_at_an_epochs_begin_does_not_count():
    """Late gradients find idle links at first: nothing is waited for until the first update is due."""
    pace = Pace()
    first = pace.of(1, merged(1, delay=2), [0.1] * 3)
    assert first == ()
    assert pace.of(1, merged(1, delay=2), [1.0, 1.0]) == (1.0, 1.0)
    assert pace.of(2, merged(1, delay=2), [0.1] * 3) == ()
    # Back in the first plan: its links are idle again.
    assert pace.of(3, Schedule(), [2.0]) == (2.0,)
    assert pace.of(1, merged(1, delay=2), [0.1] * 3) == ()


def test_a_long_period_is_not_awaited():
    """A trial of turns that repeat after 55 iterations would take a hundred."""
    turns = tuple(Turn(first=at, last=at, due=Due(iteration=at + 1)) for at in range(55))
    found = Pace().of(1, Schedule(period=55, turns=(turns,), delay_max=1), [1.0] * 30)
    assert found == (1.0,) * (30 - 2 * SPAN_MAX)


def test_of_steps_alone_the_exchange_counts():
    """Broken: a trial would be over before ranks wait for an exchange, so any number of steps alone would prove itself."""
    found = Pace().of(1, Local(every=30).schedule(1), ([0.1] * 29 + [3.1]) * 2)
    assert found == pytest.approx([0.2] * 31)
    assert len(Pace().of(1, Local(every=30, late=4).schedule(1), [0.1] * 34)) == 1


def test_meetings_do_not_matter():
    """Steps would be counted or left out by when ranks meet."""
    times_s = [0.3, 0.1, 0.2] * 5
    whole = Pace().of(1, merged(3), times_s)
    pace = Pace()
    pieces = [pace.of(1, merged(3), times_s[at : at + 2]) for at in range(0, len(times_s), 2)]
    assert [each for piece in pieces for each in piece] == pytest.approx(list(whole))

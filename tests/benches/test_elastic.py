"""What `python -m benches elastic` reads from the times of steps."""

from __future__ import annotations

import pytest

from benches.elastic.jobs import Step, going_on_s, longest_pause_s


def noted(*times: tuple[float, int]) -> list[Step]:
    """Steps of a rank: when each ended, and among how many ranks."""
    return [Step(at, number, 0, world) for number, (at, world) in enumerate(times)]


STEPS = {
    1: noted((0.0, 3), (1.0, 3), (2.6, 2), (3.6, 2), (4.6, 2)),
    2: noted((0.0, 3), (1.0, 3), (2.7, 2), (3.7, 2), (4.7, 2)),
    3: noted((0.0, 3), (1.0, 3)),
}


def lives(process):
    return process != 3


def test_a_change_lasts_until_the_last_survivor_has_stepped():
    """Broken: the table would show the fastest rank's pause, or count the step that is made anyway."""
    assert going_on_s(STEPS, lives, at_s=1.2, world=2) == pytest.approx(0.5)


def test_a_pause_is_what_is_beyond_a_usual_step():
    """Broken: long steps would look like pauses."""
    assert longest_pause_s(STEPS, lives, 2) == pytest.approx((0.7, 1.0))

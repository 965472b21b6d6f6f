"""What `python -m benches elastic` reads from the times of steps."""

from __future__ import annotations

import pytest

from benches.elastic.goodput import counted
from benches.elastic.jobs import Job, Step, going_on_s, longest_pause_s
from benches.elastic.machines import Simulated
from benches.elastic.spot import FASTER, LASTS_S, SPOT, Spot

pytestmark = pytest.mark.tools


def noted(*times: tuple[float, int]) -> list[Step]:
    """Steps of a rank: when each ended, and among how many ranks."""
    return [Step(at, number, 0, world) for number, (at, world) in enumerate(times)]


STEPS = {
    1: noted((0.0, 3), (1.0, 3), (2.6, 2), (3.6, 2), (4.6, 2)),
    2: noted((0.0, 3), (1.0, 3), (2.7, 2), (3.7, 2), (4.7, 2)),
    3: noted((0.0, 3), (1.0, 3)),
}


class Noted(Job):
    def __init__(self):
        self.began = []

    def steps(self):
        return STEPS


def test_what_follows_a_moment_begins_with_the_step_before_it(monkeypatch):
    """Broken: the pause that the moment begins would not be seen."""
    monkeypatch.setattr("benches.elastic.jobs.SETTLED", 2)
    later = Noted().settled(2, since_s=1.2)
    assert [each.at_s for each in later[1]] == [1.0, 2.6, 3.6, 4.6]
    assert later.keys() == {1, 2}
    assert longest_pause_s(later, lives, 2) == pytest.approx((0.7, 1.0))


def lives(process):
    return process != 3


def test_a_change_lasts_until_the_last_survivor_has_stepped():
    """Broken: the table would show the fastest rank's pause, or count the step that is made anyway."""
    assert going_on_s(STEPS, lives, at_s=1.2, world=2) == pytest.approx(0.5)


def test_a_pause_is_what_is_beyond_a_usual_step():
    """Broken: long steps would look like pauses."""
    assert longest_pause_s(STEPS, lives, 2) == pytest.approx((0.7, 1.0))


def test_goodput_is_steps_over_those_of_the_time_that_ranks_lived():
    """Broken: the job's own goodput would be checked against a number that knows nothing of time lost, or of ranks that die."""
    own, of_all = counted(STEPS, {3: 1.5})
    # A step takes a second among three ranks, and among two.
    lived_s = 4.6 + 4.7 + 1.5
    assert own == pytest.approx(9 / lived_s)
    assert of_all == pytest.approx(9 / (3 * 4.7))
    assert counted({process: each[:2] for process, each in STEPS.items()}, {}) == (
        pytest.approx(1),
        pytest.approx(1),
    )


def test_members_of_a_simulated_job_follow_each_decision() -> None:
    """Broken: processor time of decisions that nobody takes, or not of all that is said about one."""
    job = Simulated(20)
    for decided, happens in enumerate((job.lose, job.leave, job.lose), 2):
        job.make_step()
        happens(max(job.members))
        assert job.decided == decided
        assert {each.in_force for each in job.members.values()} == {decided}
    assert len(job.members) == 17
    assert job.spent_s > 0


def test_a_trace_is_replayed_as_changes_of_hosts():
    """Broken: hosts would go and come at other times than instances have, or the job would have none left."""
    trace = Spot("", 100.0, ((100, 12), (120, 11), (140, 0), (3699, 6), (3700, 12)))
    assert trace.replayed() == [(0.0, 4), (2.0, 1), (pytest.approx(3599 / FASTER), 2)]
    for each in SPOT:
        (at_s, first), *later = each.replayed()
        assert (at_s, first) == (0.0, 4)
        assert later
        assert all(0 < at_s < LASTS_S / FASTER for at_s, _ in later)


def test_goodput_is_known_of_a_number_of_ranks_that_made_one_step():
    """Broken: a rank that dies right after it has joined would end the row."""
    own, _ = counted({**STEPS, 4: noted((2.6, 4))}, {4: 3.1})
    assert own == pytest.approx(counted(STEPS, {3: 1.5})[0], rel=0.2)

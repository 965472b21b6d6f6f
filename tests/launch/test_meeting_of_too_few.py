"""A meeting from which so many were lost that those who are left wait for others."""

from __future__ import annotations

from hocket import _native
from hocket.members.member_messages import Answer, Back, Comes, Notes
from tests.launch.coordinated import NEWCOMERS, Newcomers


def test_a_meeting_of_too_few_is_not_held_once_the_last_comes() -> None:
    """Broken: it would train with those that have died, and not hear when the others meet."""
    job = Newcomers(2, members_min=2, members_max=3, rejoin_patience_s=60.0)
    job.join(NEWCOMERS[0])
    job.step(0)
    job.coordination.disconnect(NEWCOMERS[0])

    def comes(member: int) -> None:
        job.say(member, Comes(member=member, who=f"rank {member}", generation=2))
        ready = _native.Participant(
            member=member, host=member, founds=True, coordinator_patience_s=5.0, now_s=_native.now_ns() * 1e-9
        )
        for action in ready.linked(_native.now_ns() * 1e-9):
            assert action.bytes is not None
            job.say(member, Notes(note=action.bytes))
        job.deliver()

    comes(1)
    job.coordination.disconnect(1)
    job.deliver()
    before = len(job.told[0])
    comes(0)
    assert job.told[0][before:] == []
    assert job.join(NEWCOMERS[1]) == 3
    job.goes_by(0.1)
    assert [each.members for each in job.meetings(0)] == [(0, 1, 2), (0, 1), (0, 3)]
    job.stores.close()


def _filled_by_two_of_which_one_is_gone() -> Newcomers:
    """A job that two newcomers have filled up, after members 1 and 2; member 3 is gone when all meet."""
    job = Newcomers(3, members_min=3, members_max=3, rejoin_patience_s=60.0)
    job.lose(1)
    job.lose(2)
    assert [job.join(client) for client in NEWCOMERS] == [3, 4]
    assert job.coordination.roster.members == (0, 3, 4)
    job.coordination.disconnect(NEWCOMERS[0])
    job.step(0)
    return job


def test_of_two_that_fill_up_a_job_the_one_that_is_left_counts_once() -> None:
    """Broken: it would take both places, and the meeting would wait for a rank that nobody is."""
    job = _filled_by_two_of_which_one_is_gone()
    assert job.meetings(0) == []
    assert job.join(12) == 5
    job.goes_by(0.1)
    assert [each.members for each in job.meetings(0)] == [(0, 4, 5)]
    job.stores.close()


def test_a_newcomer_that_was_left_out_of_a_meeting_hears_it_when_it_comes_back() -> None:
    """Broken: it would wait, unheard, for as long as a process that joins may."""
    job = _filled_by_two_of_which_one_is_gone()
    job.say(NEWCOMERS[0], Back(member=3, who="rank 3", host="c", generation=None))
    job.deliver()
    assert [each.text for each in job.told[NEWCOMERS[0]] if isinstance(each, Answer)] == [
        "the others went on without it"
    ]
    job.stores.close()

"""A meeting from which so many were lost that those who are left wait for others."""

from __future__ import annotations

from hocket import _native
from hocket.members.member_messages import Comes, Notes
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

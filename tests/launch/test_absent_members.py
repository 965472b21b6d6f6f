"""What the coordinator of an elastic job does about members that hang, have ended their scripts, or are cut off."""

from __future__ import annotations

import pytest

from hocket import _native
from hocket.members.member_messages import Finished, Hears
from tests.launch.coordinated import SILENCE_S, Job


def test_whose_script_ends_early_leaves_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a `break` in one rank would end the others, or its process would be killed as it ends; and once they have come to the
    end, one that ended in the middle would be all that counts."""
    job = Job(3)
    job.act(1, job.members[1].ended(_native.now_ns() * 1e-9))
    job.say(1, Finished(steps=4))
    job.deliver()
    for rank in (0, 2):  # which need it in their next step
        job.act(rank, job.members[rank].lost(1, _native.now_ns() * 1e-9))
    job.deliver()
    assert [job.members[rank].in_force for rank in (0, 2)] == [2, 2]
    assert job.over == {1}
    assert list(job.coordination.condemned.take()) == []
    assert "rank 1 has ended after 4 steps" in caplog.text
    assert job.coordination.roster.misses(1), "another one may take its place"
    assert not job.coordination.roster.over
    for rank in (0, 2):
        job.say(rank, Finished(steps=9))
    job.deliver()
    assert job.coordination.roster.over


def test_who_waits_in_vain_loses_whoever_hangs_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a rank that hangs would have those killed that wait for it."""
    job = Job(3, heartbeat_s=SILENCE_S)
    job.act(0, job.members[0].overdue(_native.now_ns() * 1e-9))
    job.deliver()
    job.act(2, job.members[2].waits(_native.now_ns() * 1e-9))
    job.deliver()
    job.goes_by(SILENCE_S)
    assert [job.members[rank].in_force for rank in (0, 2)] == [2, 2]
    assert list(job.coordination.condemned.take()) == [(1, True)]
    assert "rank 1 is left behind: 1 member waited for it in vain" in caplog.text


def test_the_job_does_not_go_on_with_whom_nobody_hears() -> None:
    """Broken: a connection that is cut never ends, and the launcher would wait for ever for those at its other end."""
    job = Job(2, heartbeat_s=SILENCE_S)
    assert job.coordination.roster.goes_on
    job.lose(0)
    job.silent = {1}
    assert job.coordination.roster.goes_on
    job.until(lambda: not job.coordination.roster.goes_on)
    job.silent = set()
    job.say(1, Hears())
    assert job.coordination.roster.goes_on
    job.coordination.gone(1)
    assert not job.coordination.roster.goes_on

"""Members of an elastic job that come back to their coordinator, or to another one that goes on from its journal, if it has one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hocket import _native
from hocket.members.coordination import Coordination
from hocket.members.journal import Generation, Journal, Served
from hocket.members.member_messages import AtEdge, Back, Welcome
from tests.launch.coordinated import NEWCOMERS, Job, Newcomers


def test_a_newcomer_may_come_back_to_another_launcher_after_all_who_wait_for_it(
    tmp_path: Path,
) -> None:
    """Broken: all would wait for a meeting that nobody calls, until they give up."""
    served = Served(
        host="127.0.0.1",
        coordinator="127.0.0.1:1",
        secret="",
        command=(),
        settings={},
        members_min=1,
        members_max=4,
    )
    founders = Generation(number=0, members=(0, 1), holders=(0,), next_member=2, epochs_before=0)
    journal = Journal.create(tmp_path / "journal", served, founders)
    job = Newcomers(2, members_max=4, journal=journal)
    assert job.join(NEWCOMERS[0]) == 2
    job.make(0)
    journal.close(done=False)
    reopened = Journal.reopen(journal.path)
    job.coordination = Coordination.restored(reopened, job.limits, job.stores)
    now_s = _native.now_ns() * 1e-9
    for at, member in enumerate(job.members):
        job.say(at, Back(member=at, who="", host="a", generation=0))
        job.act(at, member.unlinked(now_s))
        job.act(at, member.linked(now_s))
        job.say(at, AtEdge(epoch=member.in_force or 0))
    job.deliver()
    assert job.meetings(0) == []
    job.say(NEWCOMERS[0], Back(member=2, who="", host="c", generation=None))
    job.goes_by(0.2)
    assert [each.members for each in job.meetings(0)] == [(0, 1, 2)]
    assert job.meetings(NEWCOMERS[0]) == job.meetings(0)
    reopened.close(done=True)
    job.stores.close()


def test_who_comes_back_hears_who_has_come_meanwhile() -> None:
    """Broken: a member that comes back to another launcher after the newcomers do could not say whom it waits for."""
    job = Newcomers(2, members_max=4)
    job.coordination.disconnect(1)
    assert job.join(NEWCOMERS[0]) == 2
    job.say(NEWCOMERS[1], Back(member=1, who="", host="b", generation=0))
    job.deliver()
    assert [each for each in job.told[NEWCOMERS[1]] if isinstance(each, Welcome)] == [
        Welcome(member=2, host="c")
    ]
    job.stores.close()


def test_a_loss_is_decided_though_the_journal_s_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a job would end with a rank that it could have gone on without, as nobody could write that down."""
    founders = Generation(number=0, members=(0, 1, 2), holders=(), next_member=3, epochs_before=0)
    served = Served(host="", coordinator="", secret="", command=(), settings={}, members_min=1, members_max=3)
    journal = Journal.create(tmp_path / "journal", served, founders)
    job = Job(3, journal=journal)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for lost, left, epoch in ((1, (0, 2), 2), (2, (0,), 3)):
        job.lose(lost)
        assert [job.members[rank].in_force for rank in left] == [epoch] * len(left)
    journal.close(done=True)
    assert job.coordination.roster.ended is None
    assert caplog.text.count("cannot be written: No space left on device") == 1

"""The file from which an elastic job's next launcher goes on."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket import _native
from hocket.errors import UsageError
from hocket.members.journal import Generation, Journal, Served

SERVED = Served(
    host="127.0.0.1",
    coordinator="127.0.0.1:4711",
    secret="00" * 32,
    command=("python", "train.py"),
    settings={"HOCKET_TIMEOUT_S": "5"},
    members_min=1,
    members_max=4,
)
FIRST = Generation(number=0, members=(0,), holders=(), next_member=1, epochs_before=0)


def founded() -> bytes:
    """The record of an epoch that one member begins."""
    coordinator = _native.Coordinator(
        founders=1,
        members_min=1,
        members_max=1,
        heartbeat_s=1,
        join_patience_s=1,
        rejoin_patience_s=0,
        now_s=time.monotonic(),
        history=b"",
    )
    member = _native.Participant(
        member=0, host=0, founds=True, coordinator_patience_s=1, now_s=time.monotonic()
    )
    (hello,) = member.linked(time.monotonic())
    (write,) = coordinator.note(0, hello.bytes, time.monotonic())
    return write.bytes


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal.create(tmp_path / "journal", SERVED, FIRST)
    yield made
    made.close(done=False)


def reopened(journal: Journal) -> Journal:
    journal.close(done=False)
    return Journal.reopen(journal.path)


def test_what_was_written_is_read(journal: Journal) -> None:
    """Broken: a launcher would go on without decisions that ranks have heard of."""
    journal.append(founded())
    again = reopened(journal)
    decisions, _ = _native.read_journal(again.records)
    assert (again.served, again.generation) == (SERVED, FIRST)
    assert [(each.epoch, each.members) for each in decisions] == [(1, [0])]
    again.close(done=True)
    assert not journal.path.exists()


@pytest.mark.parametrize("kept", range(1, 20))
def test_a_torn_record_is_cut_and_overwritten(kept: int, journal: Journal) -> None:
    """Broken: a job whose launcher died while it wrote could not go on, or its journal could not be read the next time."""
    record = founded()
    journal.append(record)
    journal.append(record[:kept])
    again = reopened(journal)
    assert again.records == record
    again.append(b"")
    third = reopened(again)
    assert third.records == record
    third.close(done=False)


def test_who_comes_is_kept_beside_decisions_and_a_meeting_begins_without_them(journal: Journal) -> None:
    """Broken: numbers would be given twice, or decisions of another meeting be taken for those of this one."""
    record = founded()
    journal.append(record)
    comes = Generation(number=0, members=(0,), holders=(), next_member=2, epochs_before=0)
    journal.change(comes)
    assert (journal.records, journal.generation) == (record, comes)
    meets = Generation(number=1, members=(0, 1), holders=(0,), next_member=2, epochs_before=2)
    journal.change(meets)
    journal.append(record)
    again = reopened(journal)
    assert (again.records, again.generation) == (record, meets)
    again.close(done=False)


def test_it_is_its_users_and_one_launchers(journal: Journal) -> None:
    """Broken: others could read the job's secret, or two launchers decide for one job."""
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="still runs"):
        Journal.reopen(journal.path)
    journal.change(FIRST)
    with pytest.raises(UsageError, match="still runs"):
        Journal.reopen(journal.path)
    with pytest.raises(UsageError, match="exists"):
        Journal.create(journal.path, SERVED, FIRST)


def test_where_it_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Broken: a job would begin that no launcher can go on with."""
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        Journal.create(tmp_path / "missing" / "journal", SERVED, FIRST)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Journal.reopen(tmp_path / "journal")


def test_a_job_outlives_the_disk_of_its_journal(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: work of days would end with a disk that nothing but the journal is on, or another launcher would go on from decisions
    that others have followed since."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal.append(founded())
    monkeypatch.setattr(os, "fsync", full)
    meets = Generation(number=1, members=(0, 1), holders=(0,), next_member=2, epochs_before=2)
    for _ in range(2):
        journal.append(founded())
        journal.change(meets)
    assert (journal.lost, journal.generation) == (True, meets)
    (said,) = caplog.messages
    assert f"the journal {journal.path} cannot be written: No space left on device; the job goes on" in said
    assert "from now on no other launcher can take this one's place" in said
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Journal.reopen(journal.path)

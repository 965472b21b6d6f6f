"""Files of a trace that can no longer be written while a job runs."""

import logging

from hocket.artefacts.members_change import MembersChange
from hocket.errors import ArtefactError
from hocket.job.trace_writes import TraceWrites
from hocket.members.change_log import ChangeLog


def test_a_file_that_is_lost_is_said_once(caplog):
    """Each step would bring the same warning, or the first one the end of the job."""
    tried = []

    def write():
        tried.append(1)
        raise ArtefactError("changes.jsonl cannot be written: No space left on device")

    writes = TraceWrites("changes of the plan")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            writes(write)
    assert (len(tried), len(caplog.records), writes.lost) == (1, 1, True)
    assert "No space left on device" in caplog.text


def test_changes_of_members_are_not_worth_the_job(tmp_path, caplog):
    """The launcher of an elastic job would end with the disk that its trace is on."""
    (tmp_path / "members.jsonl").mkdir()  # which no line can be added to
    changes = ChangeLog()
    changes.take_down_in(str(tmp_path), begins=False)
    for epoch in (2, 3):
        changes._take_down(MembersChange(what="left", who="rank 1", epoch=epoch, ranks=2))
    changes.end()
    assert caplog.text.count("changes of members: not in the trace any more") == 1

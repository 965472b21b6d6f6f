"""The coordinator of an elastic job behind its server: what members may say to it, and what the launcher learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from hocket import _native
from hocket.job.store.frames import FrameError
from hocket.members.member_messages import (
    Answer,
    Asks,
    AtEdge,
    Comes,
    Finished,
    Hears,
    MustLeave,
    Unheard,
    read_from_coordinator,
)
from tests.launch.coordinated import NEWCOMERS, OPERATOR, SILENCE_S, Job, Newcomers


def test_the_others_go_on_in_the_next_epoch() -> None:
    """Broken: survivors of a loss would wait for a decision that nobody makes."""
    job = Job(3)
    assert job.coordination.roster.founded
    assert [member.in_force for member in job.members] == [1, 1, 1]
    job.lose(1)
    assert [job.members[rank].in_force for rank in (0, 2)] == [2, 2]
    assert job.said[0][-2:] == ["enter", "send"]
    assert [job.coordination.roster.has(rank) for rank in range(3)] == [True, False, True]
    assert job.coordination.roster.ended is None


def test_a_job_of_too_few_ends_and_names_whom_it_lost() -> None:
    """Broken: whoever is left would wait for ranks that cannot come."""
    job = Job(3, members_min=3)
    job.lose(2)
    job.coordination.expire(_native.now_ns() + 10**9)
    job.deliver()
    assert job.coordination.roster.ended is not None
    assert job.coordination.roster.ended.lost == (2,)
    assert job.said[0][-1] == job.said[1][-1] == "exit"


def test_who_leaves_is_released_when_the_others_have_gone_on() -> None:
    """Broken: a rank that leaves would be taken for lost, or end while others still need what it has."""
    job = Job(3)
    now_s = _native.now_ns() * 1e-9
    job.act(1, job.members[1].leave_asked(now_s))
    job.deliver()
    vote = min(member.vote for member in job.members)
    for rank, member in enumerate(job.members):
        job.act(rank, member.prepared(0, vote, now_s))
    for rank in (1, 0, 2):
        assert "left" not in job.said[1]
        job.act(rank, job.members[rank].done(0, now_s))
        job.deliver()
    assert job.said[1][-1] == "left"
    assert [job.members[rank].in_force for rank in (0, 2)] == [2, 2]
    job.gone.add(1)
    job.coordination.disconnect(1)
    assert [job.coordination.roster.has(rank) for rank in range(3)] == [True, False, True]
    job.lose(2)
    assert job.members[0].in_force == 3
    assert job.said[0][-2:] == ["enter", "send"]


def test_an_operator_hears_that_a_rank_has_left() -> None:
    """Broken: whoever takes back a machine would not know when it may be switched off."""
    job = Job(3)
    job.say(OPERATOR, MustLeave(member=1))
    job.deliver()
    job.make(0)
    job.deliver()
    assert job.answers == [Answer(done=True, text="rank 1 has left, and 2 of 3 ranks go on")]
    assert "left" in job.said[1]


@pytest.mark.parametrize(
    ("rank", "members_min", "why"),
    [
        (3, 1, "rank 3 does not train; ranks 0, 1, 2 do"),
        (1, 3, "the job must have 3 ranks, and would have fewer without rank 1"),
    ],
)
def test_an_operator_hears_why_a_rank_stays(rank: int, members_min: int, why: str) -> None:
    """Broken: it would wait for what cannot come."""
    job = Job(3, members_min=members_min)
    job.say(OPERATOR, MustLeave(member=rank))
    job.deliver()
    assert job.answers == [Answer(done=False, text=why)]
    assert all("left" not in said for said in job.said)


def test_an_operator_hears_that_a_rank_was_lost_before_it_could_leave() -> None:
    """Broken: a machine that died would be taken for one that left in order."""
    job = Job(4)
    job.say(OPERATOR, MustLeave(member=1))
    # The word for the member is on its way.
    job.lose(1)
    assert job.answers == [Answer(done=False, text="rank 1 was lost before it could leave in order")]


def test_an_operator_hears_that_the_job_has_ended() -> None:
    """Broken: it would wait for a job that is no longer there."""
    job = Job(2)
    job.say(OPERATOR, MustLeave(member=1))
    for rank in range(2):
        job.say(rank, Finished(steps=4))
    job.deliver()
    assert job.answers == [Answer(done=False, text="the job ended before rank 1 could leave")]
    job.say(OPERATOR, MustLeave(member=1))
    job.deliver()
    assert job.answers[-1] == Answer(done=False, text="the job has ended")


def test_an_operator_may_go_away() -> None:
    """Broken: the coordinator would answer to nobody, or to whoever comes next."""
    job = Job(3)
    job.say(OPERATOR, MustLeave(member=1))
    job.coordination.disconnect(OPERATOR)
    job.lose(1)
    assert job.answers == []


def test_who_has_finished_waits_until_all_have() -> None:
    """Broken: a rank that leaves first could not say any more how far it was, and the others would repeat a step that stands."""
    job = Job(3)
    job.say(0, Finished(steps=4))
    job.say(2, Finished(steps=4))
    job.deliver()
    assert not job.over
    job.lose(1)
    assert job.over == {0, 2}
    job.coordination.disconnect(0)
    assert job.coordination.roster.ended is None
    assert job.members[2].in_force == 2


def test_who_cannot_be_heard_is_left_behind_once_another_misses_it() -> None:
    """Broken: a job would wait for a host whose cable is out until its connections time out; or it would lose a member that only
    the coordinator cannot hear for a while."""
    job = Job(3, heartbeat_s=SILENCE_S)
    job.silent = {2}
    job.until(lambda: job.unheard(2))
    job.silent = set()
    job.say(2, Hears())
    assert [read_from_coordinator(payload) for _, payload in job.coordination.answers()] == [Unheard()]
    job.act(2, job.members[2].unlinked(_native.now_ns() * 1e-9))
    job.act(2, job.members[2].linked(_native.now_ns() * 1e-9))
    job.deliver()
    assert [member.in_force for member in job.members] == [1, 1, 1]
    job.silent = {2}
    job.until(lambda: job.unheard(2))
    for rank in range(2):
        job.act(rank, job.members[rank].lost(2, _native.now_ns() * 1e-9))
    job.deliver()
    assert [member.in_force for member in job.members] == [2, 2, 1]
    # What was sent meanwhile reaches it when it comes back, and nothing that it says then matters.
    (evicted,) = (each for _, each in job.held if hasattr(each, "order"))
    job.act(2, job.members[2].order(evicted.order, _native.now_ns() * 1e-9))
    assert job.said[2][-1] == "exit"
    job.say(2, Hears())
    job.say(2, Finished(steps=7))
    job.deliver()
    assert [member.in_force for member in job.members[:2]] == [2, 2]


@pytest.fixture
def jobs() -> Iterator[Callable[..., Newcomers]]:
    made = []

    def make(world: int, **options: Any) -> Newcomers:
        made.append(Newcomers(world, **options))
        return made[-1]

    yield make
    for each in made:
        each.stores.close()


def test_all_meet_who_joins_when_each_is_at_the_end_of_its_step(jobs: Callable[..., Newcomers]) -> None:
    """Broken: some would meet before others have finished the step, or those that have the state would not be the first."""
    job = jobs(2, members_max=4)
    first, second = (job.join(client) for client in NEWCOMERS)
    assert (first, second) == (2, 3)
    job.step(0)
    (meeting,) = job.meetings(0)
    assert (meeting.generation, meeting.members) == (1, (0, 1, 2))
    assert job.meetings(1) == job.meetings(NEWCOMERS[0]) == [meeting]
    assert job.meetings(NEWCOMERS[1]) == [], "it came when that epoch was planned"
    # Whoever of them dies before all have met is left out.
    job.coordination.disconnect(1)
    job.deliver()
    assert [each.members for each in job.meetings(0)] == [(0, 1, 2), (0, 2)]
    assert job.meetings(0)[-1].store != meeting.store
    for client, member in ((0, 0), (NEWCOMERS[0], 2)):
        job.say(client, Comes(member=member, who="", generation=1))
        job.say(client, Comes(member=member, who="", generation=2))
        with pytest.raises(FrameError):
            job.say(client, Comes(member=member, who="", generation=2))


@pytest.mark.parametrize("silent", [NEWCOMERS[0], 1])
def test_who_is_silent_when_all_meet_is_left_out(silent: int, jobs: Callable[..., Newcomers]) -> None:
    """Broken: a process that hangs when it joins, or a host that is cut off at that moment, would hold up all others for as long as
    ranks may take to start."""
    job = jobs(3, members_max=4, heartbeat_s=SILENCE_S)
    job.join(NEWCOMERS[0])
    job.step(0)
    assert [each.members for each in job.meetings(0)] == [(0, 1, 2, 3)]
    job.silent = {silent}
    job.until(lambda: len(job.meetings(0)) > 1)
    others = tuple(each for each in range(4) if each != (3 if silent == NEWCOMERS[0] else silent))
    assert [each.members for each in job.meetings(0)[1:]] == [others]
    ((_, told),) = ((client, each) for client, each in job.held if isinstance(each, Answer))
    assert isinstance(told, Answer)
    assert "evicted in epoch" in told.text


def test_who_is_silent_at_the_end_of_a_step_is_left_out(jobs: Callable[..., Newcomers]) -> None:
    """Broken: where all wait for newcomers, nobody waits for one another's messages, and so nobody would miss one that hangs."""
    job = jobs(3, members_max=4, heartbeat_s=SILENCE_S)
    job.join(NEWCOMERS[0])
    job.silent = {2}
    job.make(0)
    for at, member in enumerate(job.members[:2]):
        job.say(at, AtEdge(epoch=member.in_force or 0))
    job.deliver()
    assert job.meetings(0) == []
    job.until(lambda: job.meetings(0) != [])
    assert [each.members for each in job.meetings(0)] == [(0, 1, 3)]


def test_a_job_that_is_full_lets_nobody_in_before_somebody_leaves(jobs: Callable[..., Newcomers]) -> None:
    """Broken: a job would have more ranks than its user allows."""
    job = jobs(2, members_max=2)
    assert job.join(NEWCOMERS[0]) == 2
    job.step(0)
    assert job.meetings(0) == job.meetings(NEWCOMERS[0]) == []
    job.lose(1)
    assert job.members[0].in_force == 2
    job.step(1)
    assert [each.members for each in job.meetings(0)] == [(0, 2)]


def test_a_meeting_of_too_few_ends_the_job(jobs: Callable[..., Newcomers]) -> None:
    """Broken: those that are left would wait for a meeting that never comes."""
    job = jobs(2, members_min=2, members_max=3)
    job.join(NEWCOMERS[0])
    job.step(0)
    job.coordination.disconnect(NEWCOMERS[0])
    job.coordination.disconnect(1)
    job.deliver()
    assert job.coordination.roster.ended is not None
    assert job.coordination.roster.ended.lost == (1,)
    assert job.told[0][-1] == Answer(
        done=False, text="the job ends: 1 of at least 2 members are left; lost: members 1"
    )


def test_who_may_not_join_hears_why(jobs: Callable[..., Newcomers]) -> None:
    """Broken: a process would wait for a job that does not want it, or one of another version would train with the others."""
    job = jobs(2, members_max=4)
    assert job.join(NEWCOMERS[0], version="0.0.1") < 0
    (answer,) = job.told[NEWCOMERS[0]]
    assert isinstance(answer, Answer)
    assert "c has Hocket 0.0.1, and the job " in answer.text
    for rank in range(2):
        job.say(rank, Finished(steps=4))
    assert job.join(NEWCOMERS[1]) < 0
    assert job.told[NEWCOMERS[1]][-1] == Answer(done=False, text="the job has ended")


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b'{"op":"finished","steps":1}',
        b'{"op":"comes","member":7,"who":"x"}',
        b'{"op":"comes","member":0,"who":"x"}',
        b'{"op":"notes","note":"!"}',
    ],
)
def test_what_no_member_says_is_refused(payload: bytes) -> None:
    """Broken: a process of an older version, or another job's, would count as a member, or stop the coordinator."""
    job = Job(2)
    with pytest.raises(FrameError):
        job.coordination.receive(9, payload, _native.now_ns())


def test_who_has_not_come_yet_may_ask_whether_it_is_heard() -> None:
    """Broken: a rank that takes more than a second to load its programs would lose its connection, and the job with it."""
    job = Job(2)
    job.coordination.receive(9, msgspec.json.encode(Asks()), _native.now_ns())
    ((client, answer),) = job.coordination.answers()
    assert (client, read_from_coordinator(answer)) == (9, Hears())

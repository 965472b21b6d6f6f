"""The coordinator of an elastic job behind its server: what members may say to it, and what the launcher learns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from hocket import __version__, _native
from hocket.job.store.frames import FrameError
from hocket.members.coordination import Coordination
from hocket.members.journal import Journal
from hocket.members.member_limits import Limits
from hocket.members.member_messages import (
    Answer,
    Asks,
    AtEdge,
    Comes,
    Finished,
    FromClient,
    FromCoordinator,
    Hears,
    Joins,
    MustLeave,
    Notes,
    Over,
    Ready,
    Regroup,
    Unheard,
    Welcome,
    read_from_coordinator,
)
from hocket.members.stores import Stores

SILENCE_S = 0.2
OPERATOR = 100
"""A client that is no member."""


class Job:
    """Members that speak with a coordinator, each over a client of the same number."""

    def __init__(
        self,
        world: int,
        *,
        members_min: int = 1,
        members_max: int | None = None,
        heartbeat_s: float = 60.0,
        rejoin_patience_s: float = 0.0,
        journal: Journal | None = None,
    ) -> None:
        self.stores = Stores("127.0.0.1", ["127.0.0.1"], bytes(32), (0, 0))
        self.limits = Limits(
            members_min=members_min,
            members_max=members_max or world,
            heartbeat_s=heartbeat_s,
            join_patience_s=60.0,
            rejoin_patience_s=rejoin_patience_s,
        )
        self.coordination = Coordination(world, self.limits, self.stores)
        self.coordination.journal = journal
        self.members = [
            _native.Participant(
                member=rank, host=rank, founds=True, coordinator_patience_s=5.0, now_s=_native.now_ns() * 1e-9
            )
            for rank in range(world)
        ]
        self.said: list[list[str]] = [[] for _ in range(world)]
        """What each member was told to do, by kind."""
        self.over: set[int] = set()
        self.answers: list[Answer] = []
        """To operators."""
        self.gone: set[int] = set()
        self.silent: set[int] = set()
        """Clients whose hosts are cut off."""
        self.held: list[tuple[int, FromCoordinator]] = []
        """What was sent to them."""
        for rank, member in enumerate(self.members):
            self.say(rank, Comes(member=rank, who=f"rank {rank}"))
            self.act(rank, member.linked(_native.now_ns() * 1e-9))
        self.deliver()

    def say(self, rank: int, message: FromClient) -> None:
        self.coordination.receive(rank, msgspec.json.encode(message), _native.now_ns())

    def act(self, rank: int, actions: list[_native.MemberAction]) -> None:
        for action in actions:
            self.said[rank].append(action.kind)
            if action.kind == "send" and action.bytes is not None:
                self.say(rank, Notes(note=action.bytes))
            if action.kind == "prepare" and action.epoch is not None:
                self.act(rank, self.members[rank].loaded(action.epoch, _native.now_ns() * 1e-9))
            if action.kind == "quiesce":
                self.act(rank, self.members[rank].quiesced(_native.now_ns() * 1e-9))

    def deliver(self) -> None:
        while answers := self.coordination.answers():
            for rank, payload in answers:
                message = read_from_coordinator(payload)
                if rank in self.silent:
                    self.held.append((rank, message))
                    continue
                if isinstance(message, Asks):
                    self.say(rank, Hears())
                    continue
                if self.hear(rank, message):
                    continue
                if isinstance(message, Over):
                    self.over.add(rank)
                elif isinstance(message, Answer):
                    assert rank == OPERATOR
                    self.answers.append(message)
                elif isinstance(message, MustLeave):
                    assert rank == message.member
                    if rank in self.gone:
                        continue
                    self.act(rank, self.members[rank].leave_asked(_native.now_ns() * 1e-9))
                elif rank not in self.gone and hasattr(message, "order"):
                    self.act(rank, self.members[rank].order(message.order, _native.now_ns() * 1e-9))

    def goes_by(self, time_s: float) -> None:
        """That time, in which members that can be heard say that they live when they are asked."""
        until_ns = _native.now_ns() + round(time_s * 1e9)
        while _native.now_ns() < until_ns:
            self.coordination.expire(_native.now_ns())
            self.deliver()
            time.sleep(0.01)

    def hear(self, client: int, message: FromCoordinator) -> bool:
        del client, message
        return False

    def lose(self, rank: int) -> None:
        self.gone.add(rank)
        self.coordination.disconnect(rank)
        self.coordination.gone(rank)
        for other, member in enumerate(self.members):
            if other not in self.gone:
                self.act(other, member.lost(rank, _native.now_ns() * 1e-9))
        self.deliver()


def test_the_others_go_on_in_the_next_epoch() -> None:
    """Broken: survivors of a loss would wait for a decision that nobody makes."""
    job = Job(3)
    assert job.coordination.founded
    assert [member.in_force for member in job.members] == [1, 1, 1]
    job.lose(1)
    assert [job.members[rank].in_force for rank in (0, 2)] == [2, 2]
    assert job.said[0][-2:] == ["send", "redo"]
    assert [job.coordination.has(rank) for rank in range(3)] == [True, False, True]
    assert job.coordination.ended is None


def test_a_job_of_too_few_ends_and_names_whom_it_lost() -> None:
    """Broken: whoever is left would wait for ranks that cannot come."""
    job = Job(3, members_min=3)
    job.lose(2)
    job.coordination.expire(_native.now_ns() + 10**9)
    job.deliver()
    assert job.coordination.ended is not None
    assert job.coordination.ended.lost == (2,)
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
    assert [job.coordination.has(rank) for rank in range(3)] == [True, False, True]
    job.lose(2)
    assert job.members[0].in_force == 3
    assert "redo" in job.said[0]


def leave(job: Job, rank: int) -> None:
    """An operator wants it, and all end a step."""
    job.say(OPERATOR, MustLeave(member=rank))
    job.deliver()
    now_s = _native.now_ns() * 1e-9
    vote = min(member.vote for at, member in enumerate(job.members) if at not in job.gone)
    for at, member in enumerate(job.members):
        job.act(at, member.prepared(0, vote, now_s))
    for at, member in enumerate(job.members):
        job.act(at, member.done(0, now_s))
        job.deliver()


def test_an_operator_hears_that_a_rank_has_left() -> None:
    """Broken: whoever takes back a machine would not know when it may be switched off."""
    job = Job(3)
    leave(job, 1)
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
    assert job.coordination.ended is None
    assert job.members[2].in_force == 2


NEWCOMERS = (10, 11)
"""Clients that want to become members."""


def test_who_cannot_be_heard_is_left_behind_once_another_misses_it() -> None:
    """Broken: a job would wait for a host whose cable is out until its connections time out; or it would lose a member that only
    the coordinator cannot hear for a while."""
    job = Job(3, heartbeat_s=SILENCE_S)
    job.silent = {2}
    job.goes_by(2 * SILENCE_S)
    job.silent = set()
    job.say(2, Hears())
    assert [read_from_coordinator(payload) for _, payload in job.coordination.answers()] == [Unheard()]
    job.act(2, job.members[2].unlinked(_native.now_ns() * 1e-9))
    job.act(2, job.members[2].linked(_native.now_ns() * 1e-9))
    job.deliver()
    assert [member.in_force for member in job.members] == [1, 1, 1]
    job.silent = {2}
    job.goes_by(2 * SILENCE_S)
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


class Newcomers(Job):
    """A job that others join. Whatever these are told is kept by client; members do what they are told, and meet at once."""

    def __init__(self, world: int, **options: Any) -> None:
        """`options`: as of `Job`."""
        self.told: dict[int, list[FromCoordinator]] = {}
        super().__init__(world, **options)

    def hear(self, client: int, message: FromCoordinator) -> bool:
        self.told.setdefault(client, []).append(message)
        if client < len(self.members):
            return isinstance(message, Welcome | Regroup | Answer)
        return client != OPERATOR

    def join(self, client: int, *, version: str = __version__) -> int:
        """The number that it gets; negative: none."""
        self.say(client, Joins(host="c", process=1, version=version))
        self.say(client, Ready())
        self.deliver()
        number = next((each.member for each in self.told[client] if isinstance(each, Welcome)), -1)
        if number >= 0:
            waiting = _native.Participant(
                member=number,
                host=99,
                founds=False,
                coordinator_patience_s=5.0,
                now_s=_native.now_ns() * 1e-9,
            )
            for action in waiting.linked(_native.now_ns() * 1e-9):
                if action.bytes is not None:
                    self.say(client, Notes(note=action.bytes))
            self.deliver()
        return number

    def make(self, step: int) -> None:
        now_s = _native.now_ns() * 1e-9
        here = [(at, member) for at, member in enumerate(self.members) if at not in self.gone]
        vote = min(member.vote for _, member in here)
        for at, member in here:
            self.act(at, member.prepared(step, vote, now_s))
        for at, member in here:
            self.act(at, member.done(step, now_s))

    def step(self, step: int) -> None:
        """All members make one, and wait for newcomers where there are any."""
        self.make(step)
        for at, member in enumerate(self.members):
            if at not in self.gone:
                self.say(at, AtEdge(epoch=member.in_force or 0))
        self.deliver()

    def meetings(self, client: int) -> list[Regroup]:
        return [each for each in self.told.get(client, []) if isinstance(each, Regroup)]


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
    job.goes_by(2 * SILENCE_S)
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
    now_s = _native.now_ns() * 1e-9
    for at, member in enumerate(job.members):
        job.act(at, member.prepared(0, min(each.vote for each in job.members), now_s))
        job.act(at, member.done(0, now_s))
    for at, member in enumerate(job.members[:2]):
        job.say(at, AtEdge(epoch=member.in_force or 0))
    job.deliver()
    assert job.meetings(0) == []
    job.goes_by(2 * SILENCE_S)
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
    assert job.coordination.ended is not None
    assert job.coordination.ended.lost == (1,)
    assert job.told[0][-1] == Answer(done=False, text="the job ends: 1 of at least 2 members are left")


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

"""A job of members around a coordinator, in one process: what one says reaches the other when it is delivered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from hocket import __version__, _native
from hocket.members.coordination import Coordination
from hocket.members.journal import Journal
from hocket.members.member_limits import Limits
from hocket.members.member_messages import (
    Answer,
    Asks,
    AtEdge,
    Comes,
    FromClient,
    FromCoordinator,
    Hears,
    Joins,
    MustLeave,
    Notes,
    Over,
    Prepared,
    Prepares,
    Ready,
    Regroup,
    Welcome,
    read_from_coordinator,
)
from hocket.members.stores import Stores

SILENCE_S, PATIENCE_S = 0.2, 30.0
OPERATOR = 100
"""A client that is no member."""
NEWCOMERS = (10, 11)
"""Clients that want to become members."""


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

    def unheard(self, member: int) -> bool:
        """Return whether the coordinator counts it as silent."""
        return member in self.coordination.roll.silent

    def until(self, holds: Callable[[], bool]) -> None:
        """Let as much time go by as that takes: what this process sleeps through is no silence of others."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline_s
            self.goes_by(SILENCE_S / 10)

    def hear(self, client: int, message: FromCoordinator) -> bool:
        del client, message
        return False

    def make(self, step: int) -> None:
        """Members make one, without waiting for newcomers."""
        now_s = _native.now_ns() * 1e-9
        here = [(at, member) for at, member in enumerate(self.members) if at not in self.gone]
        vote = min(member.vote for _, member in here)
        for at, member in here:
            self.act(at, member.prepared(step, vote, now_s))
        for at, member in here:
            self.act(at, member.done(step, now_s))

    def lose(self, rank: int) -> None:
        self.gone.add(rank)
        self.coordination.disconnect(rank)
        self.coordination.gone(rank)
        for other, member in enumerate(self.members):
            if other not in self.gone:
                self.act(other, member.lost(rank, _native.now_ns() * 1e-9))
        self.deliver()


class Newcomers(Job):
    """A job that others join. Whatever these are told is kept by client; members do what they are told, and meet at once."""

    def __init__(self, world: int, **options: Any) -> None:
        """`options`: as of `Job`."""
        self.told: dict[int, list[FromCoordinator]] = {}
        self.prepares = True
        """All say what has come of their preparation."""
        self.unable: set[int] = set()
        """Clients that cannot prepare."""
        super().__init__(world, **options)

    def hear(self, client: int, message: FromCoordinator) -> bool:
        self.told.setdefault(client, []).append(message)
        if isinstance(message, Prepares):
            if message.store is not None and self.prepares:
                self.say(client, Prepared(store=message.store, done=client not in self.unable))
            return True
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

    def step(self, step: int) -> None:
        """Members make one, and wait for newcomers where there are any."""
        self.make(step)
        for at, member in enumerate(self.members):
            if at not in self.gone:
                self.say(at, AtEdge(epoch=member.in_force or 0))
        self.deliver()

    def meetings(self, client: int) -> list[Regroup]:
        return [each for each in self.told.get(client, []) if isinstance(each, Regroup)]

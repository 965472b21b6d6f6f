"""The coordinator of an elastic job in its launcher: the native machine behind a server, with what people are told of it.

It has no journal: if the launcher dies, so do its ranks. A member is known by its rank at the start.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hocket import _native
from hocket.launch.frames import FrameError
from hocket.launch.member_messages import (
    Answer,
    Comes,
    Finished,
    FromCoordinator,
    MustLeave,
    Notes,
    Orders,
    OtherFinished,
    Over,
    Resumed,
    read_from_client,
)

TICK_NS = 50_000_000
"""How late the machine notices at most that a time is up."""

log = logging.getLogger("hocket.coordinator")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The job goes on no more: why, and which members it lost at last."""

    why: str
    lost: tuple[int, ...]


@dataclass
class _Change:
    """What is known of a loss that is being worked on."""

    since_ns: int
    """When the first connection ended, or the first member reported."""
    reported_ns: int | None = None
    evicted: list[int] = field(default_factory=list)


class Coordination:
    """Decides which members go on; a `Machine` for `launch.server`. The launcher reads what is
    public."""

    def __init__(self, founders: int, members_min: int, heartbeat_s: float) -> None:
        """Of a job that `founders` members begin. `heartbeat_s`: a member that is asked for a report, and gives none for so long,
        is left behind."""
        self._machine = _native.Coordinator(
            founders=founders, members_min=members_min, heartbeat_s=heartbeat_s, now_s=time.monotonic()
        )
        self._founders, self._members_min = founders, members_min
        self._operators: dict[int, int] = {}
        """The member that each of them wants to leave."""
        self._member_of: dict[int, int] = {}
        self._client_of: dict[int, int] = {}
        self._who: dict[int, str] = {}
        self._answers: list[tuple[int, bytes]] = []
        self._finished: dict[int, int] = {}
        self._members: tuple[int, ...] = ()
        self._epoch = 0
        self._ticked_ns = 0
        self.over = False
        """Whether all members have finished in order."""
        self._change: _Change | None = None
        self.condemned: deque[int] = deque()
        """Members whose processes should be killed: the others go on without them."""
        self.ended: Ended | None = None
        """Why the job ends before its scripts do."""

    @property
    def founded(self) -> bool:
        """Whether the first epoch is decided: before that, all members are needed."""
        return self._epoch > 0

    def has(self, member: int) -> bool:
        """Whether it is of those that go on, or went on to the end."""
        return member in self._members

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Take what a member or an operator says; FrameError if it may not say that now."""
        message = read_from_client(payload)
        if isinstance(message, MustLeave):
            self._ask_to_leave(client, message)
            return
        if self.over:
            return
        if isinstance(message, Comes):
            self._come(client, message)
            return
        if client not in self._member_of:
            raise FrameError("a member's message before its name")
        member = self._member_of[client]
        match message:
            case Notes():
                actions = self._machine.note(member, message.note, now_ns * 1e-9)
                if actions:
                    self._begin_change()
                self._act(actions)
            case Finished():
                self._finish(member, message.steps)
            case Resumed():
                self._resumed(member, message)

    def answers(self) -> list[tuple[int, bytes]]:
        """What to tell members since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def disconnect(self, client: int) -> None:
        """A member's connection has ended, or an operator's."""
        self._operators.pop(client, None)
        member = self._member_of.pop(client, None)
        if member is None:
            return
        del self._client_of[member]
        if self.over:
            return
        if self.has(member):
            self._begin_change()
        self._act(self._machine.unlinked(member, time.monotonic()))

    def gone(self, member: int) -> None:
        """A member's process has ended, says the launcher."""
        self._act(self._machine.gone(member, time.monotonic()))

    def expire(self, now_ns: int) -> None:
        """Time passes."""
        if now_ns >= self._ticked_ns + TICK_NS and not self.over:
            self._ticked_ns = now_ns
            self._act(self._machine.tick(now_ns * 1e-9))

    def deadline_ns(self) -> int | None:
        """When `expire` is due next."""
        return None if self.over else self._ticked_ns + TICK_NS

    def is_over(self, world: int) -> bool:
        """Whether nobody is connected, and `world` members have been."""
        return not self._member_of and len(self._who) >= world

    def _come(self, client: int, message: Comes) -> None:
        member = message.member
        if client in self._member_of or member >= self._founders or member in self._who:
            raise FrameError(f"{message.who} comes as member {member}, which it is not")
        self._member_of[client], self._client_of[member] = member, client
        self._who[member] = message.who

    def _ask_to_leave(self, client: int, message: MustLeave) -> None:
        why = self._why_it_stays(message.member)
        if why is not None:
            self._answers.append((client, msgspec.json.encode(Answer(done=False, text=why))))
            return
        self._operators[client] = message.member
        self._tell(message.member, message)

    def _why_it_stays(self, member: int) -> str | None:
        if not self.founded:
            return "the job has not begun yet: some of its ranks are still to come"
        if self.over or self.ended is not None:
            return "the job has ended"
        if not self.has(member) or member not in self._client_of:
            here = ", ".join(str(each) for each in self._members)
            return f"rank {member} does not train; ranks {here} do"
        leaving = set(self._operators.values()) - {member}
        if len(self._members) - len(leaving) <= self._members_min:
            return f"the job must have {self._members_min} ranks, and would have fewer without rank {member}"
        return None

    def _answer_operators(self, evicted: Sequence[int] = ()) -> None:
        """Those whose members are no longer there."""
        ended = self.over or self.ended is not None
        for client, member in tuple(self._operators.items()):
            who = self._who[member]
            if self.has(member) and not ended:
                continue
            del self._operators[client]
            if self.has(member):
                answer = Answer(done=False, text=f"the job ended before {who} could leave")
            elif member in evicted:
                answer = Answer(done=False, text=f"{who} was lost before it could leave in order")
            else:
                left = f"{len(self._members)} of {self._founders} ranks go on"
                answer = Answer(done=True, text=f"{who} has left, and {left}")
            self._answers.append((client, msgspec.json.encode(answer)))

    def _begin_change(self) -> None:
        if self.founded and self._change is None:
            self._change = _Change(time.monotonic_ns())

    def _act(self, actions: Sequence[_native.MemberAction]) -> None:
        waiting = deque(actions)
        while waiting:
            action = waiting.popleft()
            match action.kind:
                case "send" if action.member in self._client_of and action.bytes is not None:
                    self._tell(action.member, Orders(order=action.bytes))
                case "write":
                    self._decided(action)
                    waiting.extend(self._machine.written(time.monotonic()))
                case "kill" if action.member is not None:
                    self.condemned.append(action.member)
                case "end":
                    self.ended = Ended(why=action.why or "", lost=tuple(action.members))
                    self._answer_operators()

    def _tell(self, member: int, message: FromCoordinator) -> None:
        self._answers.append((self._client_of[member], msgspec.json.encode(message)))

    def _decided(self, decision: _native.MemberAction) -> None:
        before, self._epoch, self._members = self._members, decision.epoch or 0, tuple(decision.members)
        change, self._change = self._change, None
        if decision.step is None:
            leavers = ", ".join(self._who[member] for member in before if member not in self._members)
            log.warning(
                "epoch %d after %s has left: %d of %d ranks go on",
                self._epoch,
                leavers,
                len(self._members),
                self._founders,
            )
        elif self._epoch > 1:
            after_ms = 0.0 if change is None else (time.monotonic_ns() - change.since_ns) * 1e-6
            log.warning(
                "epoch %d without %s: %d of %d ranks go on, from step %d; decided %.0f ms after the loss was noticed",
                self._epoch,
                ", ".join(self._who[member] for member in decision.evicted),
                len(self._members),
                self._founders,
                decision.step or 0,
                after_ms,
            )
        self._answer_operators(decision.evicted)
        self._end_if_finished()

    def _resumed(self, member: int, message: Resumed) -> None:
        if self._members and member == self._members[0]:
            work = "one step's communication was done again" if message.again else "nothing was done again"
            log.warning(
                "epoch %d: training goes on, %.0f ms after rank %d stopped; %s",
                message.epoch,
                message.took_s * 1e3,
                member,
                work,
            )

    def _finish(self, member: int, steps: int) -> None:
        self._finished[member] = steps
        for other in self._client_of:
            if other != member:
                self._tell(other, OtherFinished(member=member, steps=steps))
        self._end_if_finished()

    def _end_if_finished(self) -> None:
        if self._members and all(member in self._finished for member in self._members):
            self.over = True
            for member in self._client_of:
                self._tell(member, Over())
            self._answer_operators()

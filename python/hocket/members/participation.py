"""A member's part in one generation: the native machine that decides with the coordinator, and the engine that follows it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from hocket import _native
from hocket.errors import EpochError, Error
from hocket.members.member_messages import FromMember, Notes
from hocket.members.progress import Progress

QUIESCE_TIMEOUT_S = 10.0
"""Time limit for ops that run when an epoch ends: far longer than the longest."""
FENCE_TIMEOUT_S = 0.2
"""Time that a neighbour which was left behind may take to end before it is killed."""


@dataclass(frozen=True)
class Epoch:
    """Members that go on: by new rank, each member's rank in the generation; and which have left in order until now."""

    number: int
    members: tuple[int, ...]
    left: tuple[int, ...]


@dataclass
class MemberEnd:
    """How a process's part in its job ends.

    Attributes:
        why: reason why it takes no further part, or None.
        over: all members have finished.
        released: it has left in order.
        shut_out: the others go on without it, or the job ends.
    """

    why: str | None = None
    over: bool = False
    released: bool = False
    shut_out: bool = False

    def text(self) -> str | None:
        """Return why nothing more comes, or None."""
        return "the job has ended" if self.over and self.why is None else self.why


class Leavers:
    """Members that have left: `all` of them."""

    def __init__(self) -> None:
        self.all: tuple[int, ...] = ()
        self._others: tuple[int, ...] | None = None

    def decided(self, before: Sequence[int], members: Sequence[int], evicted: Collection[int]) -> bool:
        """Record an epoch of `members` after one of those `before`. Return whether some have left with it."""
        leavers = tuple(each for each in before if each not in members and each not in evicted)
        if leavers:
            # Others may have been lost since: then this is the second epoch without the leavers, and some have been in the first.
            self.all += leavers
            self._others = tuple(each for each in before if each not in leavers)
        return bool(leavers)

    def leave(self, members: Sequence[int], me: int) -> None:
        """Record that this member has left. The others may have gone on before it has left the barrier of its last step."""
        self._others = tuple(each for each in members if each != me)

    def take(self) -> tuple[int, ...] | None:
        """Return the members without those that have left since the last call, or None if none has."""
        others, self._others = self._others, None
        return others


class Participation:
    """Callers hold the member's lock. A process that waits to join has no engine yet, although it may already have replaced a lost
    member.

    Attributes:
        ranks: members of the generation, by rank.
        members: members of the newest epoch that this one has entered.
        pending: epochs that the engine is to begin.
        committed: number of the job's steps that stand.
        finished: numbers of steps of members whose scripts have ended, by rank.
        leavers: members that have left in order.
    """

    def __init__(
        self,
        me: int,
        changed: threading.Condition,
        tell: Callable[[FromMember], None],
        progress: Progress,
        end: MemberEnd,
        *,
        machine: _native.Participant | None = None,
        engine: _native.Engine | None = None,
        ranks: Sequence[int] = (),
        steps: int = 0,
    ) -> None:
        """Begin as member `me`, with that number of the job's steps."""
        self._me = me
        self._changed, self._tell, self._progress, self._end = changed, tell, progress, end
        self._machine, self._engine, self.ranks, self.committed = machine, engine, tuple(ranks), steps
        self.members: tuple[int, ...] = ()
        self.pending: deque[Epoch] = deque()
        self.finished: dict[int, int] = {}
        self.leavers = Leavers()
        # Ranks that step alone make several steps between two that they make together, which alone the machine counts.
        self._prepares = self._next = 0
        self._gone: set[int] = set()
        """Lost members whose processes have ended, as the coordinator has been told."""

    @property
    def stopped(self) -> bool:
        """True before a generation has met, and once the next one is called."""
        return self._machine is None

    @property
    def idle(self) -> bool:
        """True for a process that has never trained."""
        return self._machine is None and self._engine is None

    @property
    def machine(self) -> _native.Participant:
        """EpochError: the generation is over."""
        if self._machine is None:
            raise EpochError(f"rank {self._me}: the members of the job meet anew")
        return self._machine

    def stop(self) -> None:
        """End with the generation, whose members are called to meet anew."""
        self._machine = None

    def in_ranks(self, members: Collection[int]) -> tuple[int, ...]:
        return tuple(self.ranks.index(each) for each in members if each in self.ranks)

    def handle(self, event: Callable[..., Sequence[_native.MemberAction]], *details: object) -> None:
        """Tell the machine of an event, unless it has stopped, and do what it asks for."""
        if self._machine is not None:
            self._act(event(self._machine, *details, time.monotonic()))

    def _act(self, actions: Sequence[_native.MemberAction]) -> set[str]:
        """Do these actions, in order. Return their kinds."""
        waiting, kinds = deque(actions), set()
        while waiting and self._machine is not None:
            action = waiting.popleft()
            kinds.add(action.kind)
            match action.kind:
                case "send" if action.bytes is not None:
                    self._tell(Notes(note=action.bytes))
                case "quiesce":
                    self._progress.stop()
                    if self._engine is not None:
                        self._engine.quiesce("the members of the job change", QUIESCE_TIMEOUT_S)
                    waiting.extend(self._machine.quiesced(time.monotonic()))
                case "commit":
                    self._next, self.committed = (action.step or 0) + 1, self._prepares + 1
                case "prepare":
                    self._progress.report()
                    # The epoch's programs are made when the epoch begins.
                    waiting.extend(self._machine.loaded(action.epoch or 0, time.monotonic()))
                case "enter":
                    self._enter(action)
                case "left":
                    self._end.released, self._end.why = True, action.why
                    self.leavers.leave(self.members, self._me)
                case "exit":
                    self._end.why, self._end.shut_out = action.why, True
                    self.interrupt(action.why or "")
        self._changed.notify_all()
        return kinds

    def _enter(self, decision: _native.MemberAction) -> None:
        before, self.members = self.members, tuple(decision.members)
        some_left = self.leavers.decided(before, self.members, decision.evicted)
        if some_left or decision.step is not None:
            number, gone = decision.epoch or 0, self.leavers.all
            self.pending.append(Epoch(number, self.in_ranks(self.members), self.in_ranks(gone)))

    def prepared(self, step: int, vote: int) -> bool:
        """Note that the sums of a step are here. Return whether it goes on to the barrier. EpochError: the generation is over."""
        self._prepares = step
        return "barrier" in self._act(self.machine.prepared(self._next, vote, time.monotonic()))

    def done(self, step: int) -> bool:
        """Note that the barrier of a step is complete. Return whether the step stands. EpochError: the generation is over."""
        self._act(self.machine.done(self._next, time.monotonic()))
        return self.committed > step

    def come(self) -> None:
        """Note that the script has come to where it waits for others, or for a decision."""
        if self._machine is not None and self._machine.in_force is None:
            self.handle(_native.Participant.waits)

    def give_up(self, rank: int | None) -> None:
        """Note that the script waits in vain for that rank, or (None) longer than it may. EpochError: the generation is over."""
        machine, now_s = self.machine, time.monotonic()
        self._act(machine.overdue(now_s) if rank is None else machine.lost(self.ranks[rank], now_s))

    def note_losses(self) -> None:
        """Tell the machine of peers that the engine has lost."""
        if self._machine is None or self._engine is None:
            return
        for rank in self._engine.lost:
            self.handle(_native.Participant.lost, self.ranks[rank])
        for member in {self.ranks[rank] for rank in self._engine.gone} - self._gone:
            self._gone.add(member)
            self.handle(_native.Participant.gone, member)

    def due(self) -> Epoch | None:
        """Return the last epoch that was decided if it is in force, else None."""
        while self.pending:
            epoch = self.pending.popleft()
            if self._machine is not None and epoch.number == self._machine.in_force:
                return epoch
        return None

    def resume(self, epoch: Epoch) -> None:
        """Begin an epoch on the engine, without programs. EpochError: a member is lost already, and another epoch follows."""
        assert self._engine is not None  # noqa: S101  # there is a machine
        # Members whose scripts have ended stopped when they reported, and end by themselves.
        left = {*self.in_ranks(self.leavers.all), *self.finished}
        self._engine.resume(epoch.number, epoch.members, FENCE_TIMEOUT_S, left=sorted(left))

    def interrupt(self, why: str) -> None:
        """End all waits of the engine."""
        if self._engine is not None:
            with contextlib.suppress(Error):
                self._engine.interrupt(why)

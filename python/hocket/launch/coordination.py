"""The coordinator of an elastic job in its launcher: the native machine behind a server, with what people are told of it.

It has no journal: if the launcher dies, so do its ranks. A member is known by a number: a founder's is its rank at the start, and
joiners get the next ones.

A *generation* is a meeting of members, who then have a wire and a machine of their own. The founders are the first. When an epoch
with newcomers has begun, all its members wait between two steps until each of them does, and the next generation meets: this
machine then makes room for a new one, which knows nothing of it. If one of them dies while they meet, the others meet once more.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from hocket import __version__, _native
from hocket.launch.frames import FrameError
from hocket.launch.member_messages import (
    Answer,
    Asks,
    AtEdge,
    Comes,
    Ends,
    Finished,
    FromCoordinator,
    Hears,
    Joins,
    MustLeave,
    Notes,
    Orders,
    OtherFinished,
    Over,
    Regroup,
    Resumed,
    Unheard,
    Welcome,
    read_from_client,
)
from hocket.launch.sight import Sight
from hocket.launch.stores import Stores

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

    def __init__(
        self,
        founders: int,
        members_min: int,
        members_max: int,
        *,
        heartbeat_s: float,
        join_patience_s: float,
        stores: Stores,
    ) -> None:
        """Of a job that `founders` members begin, which others may join at `stores` while it has fewer than `members_max`.

        A member that is silent for `heartbeat_s`, and that others cannot hear either, is left behind; so is one that is asked for a
        report and gives none for so long, and a newcomer whose epoch has not begun after `join_patience_s`."""
        self._members_min, self._members_max = members_min, members_max
        self._heartbeat_s, self._join_patience_s = heartbeat_s, join_patience_s
        self._stores = stores
        self._machine = self._machine_of(founders)
        self._next = founders
        self._generation = 0
        self._generation_members: tuple[int, ...] = tuple(range(founders))
        self._meeting = True
        """Whether the generation is not founded yet."""
        self._present: set[int] = set()
        """Those of the generation that have met the others."""
        self._hellos: dict[int, bytes] = {}
        """What those who wait to join have told the machine."""
        self._hosts: dict[int, str] = {}
        """Of joiners."""
        self._at_edge: dict[int, int] = {}
        """The epoch with newcomers in which a member waits for these."""
        self._operators: dict[int, int] = {}
        """The member that each of them wants to leave."""
        self._member_of: dict[int, int] = {}
        self._client_of: dict[int, int] = {}
        self._sights: dict[int, Sight] = {}
        """Of those that are connected."""
        self._unheard: set[int] = set()
        self._shut_out: set[int] = set()
        """Lost members, some of which may come back and not know it."""
        self._who: dict[int, str] = {}
        self._answers: list[tuple[int, bytes]] = []
        self._finished: dict[int, int] = {}
        self._members: tuple[int, ...] = ()
        self._epoch = 0
        """Of the machine."""
        self._epochs_before = 0
        """Of generations before."""
        self._ticked_ns = 0
        self.founded = False
        """Whether the first epoch is decided: before that, all founders are needed."""
        self.over = False
        """Whether all members have finished in order."""
        self._change: _Change | None = None
        self.condemned: deque[int] = deque()
        """Members whose processes should be killed: the others go on without them."""
        self.ended: Ended | None = None
        """Why the job ends before its scripts do."""

    def _machine_of(self, members: int) -> _native.Coordinator:
        return _native.Coordinator(
            founders=members,
            members_min=self._members_min,
            members_max=self._members_max,
            heartbeat_s=self._heartbeat_s,
            join_patience_s=self._join_patience_s,
            now_s=time.monotonic(),
        )

    @property
    def goes_on(self) -> bool:
        """Whether members train, wherever they run."""
        return self.founded and not self.over and self.ended is None and bool(self._member_of)

    def has(self, member: int) -> bool:
        """Whether it is of those that go on, or went on to the end."""
        return member in self._members

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Take what a member or an operator says; FrameError if it may not say that now."""
        message = read_from_client(payload)
        if isinstance(message, MustLeave):
            self._ask_to_leave(client, message)
            return
        if isinstance(message, Joins):
            self._join(client, message)
            return
        if self.over:
            return
        if isinstance(message, Comes):
            self._come(client, message)
            return
        if client not in self._member_of:
            raise FrameError("a member's message before its name")
        member = self._member_of[client]
        if member in self._shut_out:
            # It was told so, and will hear that.
            return
        if self._sights[member].heard():
            self._unheard.discard(member)
            self._tell(member, Unheard())
        match message:
            case Asks():
                self._tell(member, Hears())
            case Notes():
                self._note(member, message.note, now_ns)
            case AtEdge():
                self._at_edge[member] = message.epoch
                self._regroup_at_the_edge()
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
        del self._client_of[member], self._sights[member]
        self._unheard.discard(member)
        self._hellos.pop(member, None)
        self._at_edge.pop(member, None)
        if self.over:
            return
        if self.has(member):
            self._begin_change()
        self._unlinked(member)

    def _unlinked(self, member: int) -> None:
        """It is not there any more, as far as this end of its connection knows."""
        if self._generation > 0 and self._meeting and member in self._generation_members:
            missing = {each for each in self._members if each not in self._client_of} | self._unheard
            self._meet_without([each for each in self._members if each in missing])
        else:
            self._act(self._machine.unlinked(member, time.monotonic()))

    def gone(self, member: int) -> None:
        """A member's process has ended, says the launcher."""
        self._act(self._machine.gone(member, time.monotonic()))

    def end_all(self) -> None:
        """The launcher ends all ranks, whatever the machine decides meanwhile."""
        for member in self._client_of:
            self._tell(member, Ends())

    def expire(self, now_ns: int) -> None:
        """Time passes."""
        if now_ns >= self._ticked_ns + TICK_NS and not self.over:
            self._ticked_ns = now_ns
            self._look()
            self._act(self._machine.tick(now_ns * 1e-9))

    def _look(self) -> None:
        """At members that cannot be heard."""
        for member, sight in self._sights.items():
            match sight.look():
                case "ask":
                    self._tell(member, Asks())
                case "lost":
                    self._unheard.add(member)
                    self._unlinked(member)
                    self._regroup_at_the_edge()

    def deadline_ns(self) -> int | None:
        """When `expire` is due next."""
        return None if self.over else self._ticked_ns + TICK_NS

    def is_over(self, world: int) -> bool:
        """Whether nobody is connected, and `world` members have been."""
        return not self._member_of and len(self._who) >= world

    def _come(self, client: int, message: Comes) -> None:
        member = message.member
        if message.generation != self._generation:
            # The others have begun to meet once more since.
            return
        expected = member in self._generation_members and member not in self._present
        if self._generation == 0:
            expected = expected and client not in self._member_of and member not in self._who
        else:
            expected = expected and self._member_of.get(client) == member
        if not expected:
            raise FrameError(f"{message.who} comes as member {member}, which it is not")
        self._present.add(member)
        self._connected(client, member)
        self._who.setdefault(member, message.who)

    def _connected(self, client: int, member: int) -> None:
        self._member_of[client], self._client_of[member] = member, client
        self._sights[member] = Sight(self._heartbeat_s)

    def _join(self, client: int, message: Joins) -> None:
        if client in self._member_of:
            raise FrameError("a member wants to become one")
        why = None
        if self.over or self.ended is not None:
            why = "the job has ended"
        elif not self.founded:
            why = "the job has not begun yet: some of its ranks are still to come"
        elif message.version != __version__:
            why = f"{message.host} has Hocket {message.version}, and the job {__version__}\nhint: install the same version"
        if why is not None:
            self._answers.append((client, msgspec.json.encode(Answer(done=False, text=why))))
            return
        member, self._next = self._next, self._next + 1
        self._connected(client, member)
        self._who[member] = f"rank {member} on {message.host} (process {message.process})"
        self._hosts[member] = message.host
        for other in self._client_of:
            self._tell(other, Welcome(member=member, host=message.host))
        if len(self._members) >= self._members_max:
            log.warning(
                "%s waits: the job has %d ranks, as many as it may", self._who[member], self._members_max
            )

    def _note(self, member: int, note: bytes, now_ns: int) -> None:
        if member in self._present:
            actions = self._machine.note(member, note, now_ns * 1e-9)
        elif member in self._generation_members:
            # Of the machine that was there before.
            return
        else:
            self._hellos.setdefault(member, note)
            if self._meeting:
                return
            actions = self._machine.note(member, note, now_ns * 1e-9)
        if actions and member in self._members:
            self._begin_change()
        self._act(actions)

    def _regroup_at_the_edge(self) -> None:
        """The next generation meets, if all wait for it: those of the newest epoch, in which there are newcomers. They need nothing
        of members that are silent, and train on without these."""
        here = [each for each in self._members if each in self._generation_members]
        heard = [each for each in here if each not in self._unheard]
        waiting = all(self._at_edge.get(each) == self._epoch for each in heard)
        newcomers = [each for each in self._members if each not in here and each not in self._unheard]
        if self._meeting or not newcomers or not heard or not waiting:
            return
        if all(each in self._client_of for each in self._members):
            self._meet_without([each for each in self._members if each in self._unheard])

    def _meet_without(self, lost: Sequence[int]) -> None:
        """The members meet, without those of them that were lost on the way."""
        for each in lost:
            log.warning("%s was lost before all had met it; the others meet without it", self._who[each])
            self._shut_out.add(each)
            if each in self._client_of:
                # It may come back.
                number = self._epochs_before + self._epoch + 1
                why = f"evicted in epoch {number}: it could not be heard when the job's ranks met"
                self._tell(each, Answer(done=False, text=why))
            if self._meeting:
                self._stores.refuse(self._generation_members.index(each), f"{self._who[each]} is lost")
        members = tuple(each for each in self._members if each not in lost)
        if len(members) >= self._members_min:
            self._regroup(members)
            return
        why = f"{len(members)} of at least {self._members_min} members are left"
        self.ended = Ended(why=why, lost=tuple(lost))
        for each in members:
            self._tell(each, Answer(done=False, text=f"the job ends: {why}"))
        self._answer_operators()

    def _regroup(self, members: Sequence[int]) -> None:
        self._epochs_before, self._epoch = self._epochs_before + self._epoch, 0
        self._generation += 1
        self._generation_members = self._members = tuple(members)
        self._meeting, self._change = True, None
        self._present.clear()
        self._at_edge.clear()
        self._finished.clear()
        self._machine = self._machine_of(len(members))
        order = Regroup(generation=self._generation, members=self._members, store=self._stores.another())
        for each in members:
            self._hellos.pop(each, None)
            self._tell(each, order)

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
        if self._meeting:
            return "the job's ranks are just meeting those that have joined; ask again"
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
                left = f"{len(self._members)} of {len(self._generation_members)} ranks go on"
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
        before, self._members = self._members, tuple(decision.members)
        self._shut_out.update(decision.evicted)
        self._epoch = decision.epoch or 0
        epoch = self._epochs_before + self._epoch
        change, self._change = self._change, None
        newcomers = [each for each in self._members if each not in self._generation_members]
        if self._meeting:
            self._founded(epoch)
        elif newcomers:
            log.warning(
                "%s: the others meet %s at the end of a step",
                self._names(newcomers),
                "it" if len(newcomers) == 1 else "them",
            )
        elif decision.step is None:
            leavers = self._names(each for each in before if each not in self._members)
            here, all_of_it = len(self._members), len(self._generation_members)
            log.warning("epoch %d after %s has left: %d of %d ranks go on", epoch, leavers, here, all_of_it)
        if decision.step is not None and self._epoch > 1:
            after_ms = 0.0 if change is None else (time.monotonic_ns() - change.since_ns) * 1e-6
            log.warning(
                "epoch %d without %s: %d of %d ranks go on, from step %d; decided %.0f ms after the loss was noticed",
                epoch,
                self._names(decision.evicted),
                len(self._members),
                len(self._generation_members),
                decision.step or 0,
                after_ms,
            )
        self._answer_operators(decision.evicted)
        self._end_if_finished()

    def _founded(self, epoch: int) -> None:
        """All of the generation have met."""
        self._meeting, self.founded = False, True
        if self._generation == 0:
            return
        newcomers = self._names(each for each in self._members if each in self._hosts)
        log.warning("epoch %d with %s: %d ranks go on", epoch, newcomers or "the others", len(self._members))
        for each in self._members:
            self._hosts.pop(each, None)
        for member, note in self._hellos.items():
            self._act(self._machine.note(member, note, time.monotonic()))

    def _names(self, members: Iterable[int]) -> str:
        return ", ".join(self._who[member] for member in members)

    def _resumed(self, member: int, message: Resumed) -> None:
        if self._members and member == self._members[0]:
            work = "one step's communication was done again" if message.again else "nothing was done again"
            log.warning(
                "epoch %d: training goes on, %.0f ms after rank %d stopped; %s",
                self._epochs_before + message.epoch,
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
        here = [member for member in self._members if member in self._generation_members]
        if here and not self._meeting and all(member in self._finished for member in here):
            self.over = True
            for member in self._client_of:
                self._tell(member, Over())
            self._answer_operators()

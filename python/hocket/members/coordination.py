"""Coordinator of an elastic job in its launcher: the native machine behind a server, with log messages for people.

Each decision is in the journal, if there is one, before any member hears of it, so that another launcher can resume from there. A
member is known by a number: a founder's is its rank at the start, and joiners get the next ones.

A *generation* is a meeting of members, which then have a wire and a machine of their own. The founders are the first. When an epoch
with newcomers has begun, each member waits between two steps until all do, and the next generation meets: a new machine, which
knows nothing of this one, replaces it. If a member dies during the meeting, the others meet once more.
"""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from hocket import _native
from hocket.job.store.frames import FrameError
from hocket.members import member_messages as messages
from hocket.members.admission import Admission
from hocket.members.change_log import ChangeLog, Ended
from hocket.members.condemned import Condemned
from hocket.members.gathering import Gathering
from hocket.members.journal import Generation, Journal
from hocket.members.member_limits import Limits
from hocket.members.operators import Operators
from hocket.members.roll import Roll
from hocket.members.shortage import Shortage
from hocket.members.stores import Stores
from hocket.members.waiting import Waiting

TICK_NS = 50_000_000
"""Longest delay until the machine notices that a time is up."""


class Coordination:
    """Coordinator that decides which members go on: a `Machine` for a store's server. The launcher reads its public attributes."""

    def __init__(self, founders: int, limits: Limits, stores: Stores, kept: range = range(0)) -> None:
        """Coordinate a job that `founders` members begin, and that others may join at `stores`. `kept`: numbers reserved for
        replacements that the launcher starts."""
        self._limits = limits
        self._stores = stores
        self.journal: Journal | None = None
        """Journal to which decisions are written."""
        self._machine = limits.machine(founders)
        self._admission = Admission(founders, kept)
        self._gathering = Gathering(range(founders))
        self._waiting = Waiting()
        self._operators = Operators()
        self._refused: set[int] = set()
        """Clients that came back and were refused."""
        self.roll = Roll(limits.heartbeat_s)
        """Connected members."""
        self._shut_out: set[int] = set()
        """Lost members; some may come back without knowing that they are lost."""
        self._left: set[int] = set()
        """Members that have left in order."""
        self._answers: list[tuple[int, bytes]] = []
        self._finished: dict[int, int] = {}
        self._members: tuple[int, ...] = ()
        self._epoch = 0  # of the machine
        self._ticked_ns = 0
        self._back_until_ns: int | None = None
        """Time from which members that have not come back to this coordinator count as gone."""
        self.founded = False
        """True once the first epoch is decided; before that, all founders are needed."""
        self.over = False
        """True once all members have finished in order."""
        self.changes = ChangeLog()
        self._shortage = Shortage(limits, self.changes)
        self.condemned = Condemned(self.roll, self.changes)
        self.ended: Ended | None = None
        """End of the job before its scripts end, or None."""

    @classmethod
    def restored(cls, journal: Journal, limits: Limits, stores: Stores) -> Coordination:
        """Resume from the journal of a coordinator that died. Members come back by themselves; if they were about to meet, they
        meet again."""
        generation = journal.generation
        made = cls(len(generation.members), limits, stores, range(*journal.served.replacements))
        made.journal = journal
        decisions, _ = _native.read_journal(journal.records)
        made._machine = limits.machine(len(generation.members), journal.records)
        made._admission.next_member = generation.next_member
        made._gathering = Gathering.restored(generation, met=bool(decisions))
        made._members = generation.members
        for decision in decisions:
            made._follow(decision)
        made.founded = True
        made.changes.account.begin(len(made._members), time.monotonic(), counts_first=False)
        made._back_until_ns = time.monotonic_ns() + round(limits.heartbeat_s * 1e9)
        return made

    def generation(self) -> Generation:
        """Generation that meets, or has met, for the journal."""
        return self._gathering.kept(self._admission.next_member)

    def end(self, why: str, *, lost: tuple[int, ...] = ()) -> None:
        """Tell all members that the job ends."""
        if self.over or self.ended is not None:
            return
        self.ended = Ended(why=why, lost=lost)
        self.changes.end()
        for each in self.roll:
            self._tell(each, messages.Answer(done=False, text=f"the job ends: {why}"))
        self._answer_operators()

    @property
    def goes_on(self) -> bool:
        """True if members train, wherever they run."""
        here = len(self.roll.missing(self._members)) < len(self._members)
        return self.founded and not self.over and self.ended is None and here

    @property
    def room(self) -> int:
        """Number of processes for which the job has room."""
        return self._limits.members_max - len(self._members) + len(self.roll.missing(self._members))

    def misses(self, member: int) -> bool:
        """Return whether the job goes on and the member has not left in order, so that another process may take its place."""
        return self.goes_on and not self._finished and member not in self._left

    @property
    def _closed(self) -> str | None:
        """Reason why no process may join, or leave in order; None if it may."""
        if self.over or self.ended is not None:
            return "the job has ended"
        return None if self.founded else "the job has not begun yet: some of its ranks are still to come"

    def has(self, member: int) -> bool:
        """Return whether the member goes on, or went on to the end."""
        return member in self._members

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Handle a message of a member or an operator. FrameError: the message is not allowed now."""
        match messages.read_from_client(payload):
            case messages.MustLeave() as message:
                self._ask_to_leave(client, message)
            case messages.Joins() as message:
                self._join(client, message)
            case _ if self.over or client in self._refused:
                pass
            case messages.Back() as message:
                self._come_back(client, message)
            case _ if self.ended is not None:
                pass
            case messages.Comes() as message:
                self._come(client, message)
            case message:
                self._take(client, message, now_ns)

    def _take(self, client: int, message: messages.FromMember, now_ns: int) -> None:  # noqa: PLR0912  # a case per message
        member = self.roll.member_of(client)
        if isinstance(message, messages.Asks):
            self._answers.append((client, msgspec.json.encode(messages.Hears())))
        if member is None:
            # A founder that still loads, or a process that was refused.
            if isinstance(message, messages.Asks | messages.Ready):
                return
            raise FrameError("a member's message before its name")
        if member in self._shut_out:  # the refusal is on its way
            return
        if self.roll.heard(member):
            self._tell(member, messages.Unheard())
        match message:
            case messages.Notes():
                self._note(member, message.note)
            case messages.Ready():
                for newcomer in self._waiting.ready(member):
                    self._note(*newcomer)
            case messages.AtEdge():
                self._gathering.wait_at_edge(member, message.epoch)
                self._regroup_at_the_edge()
            case messages.Gives() | messages.Lacks():
                for other, gives in self._gathering.hand_over(member, message):
                    self._tell(other, gives)
            case messages.CannotMeet() if 0 < message.generation == self._gathering.number:
                self._gathering.complain(member, message.missing, now_ns)
            case messages.Finished():
                self._finish(member, message.steps)
            case messages.Resumed() if self._members and member == self._members[0]:
                self.changes.resumed(self._gathering.epochs_before, member, message)
            case messages.Committed() if member in self._members or member in self._left:
                joining = self._gathering.awaits(self._members, self._waiting.states)
                self.changes.stands(message, joining=joining)

    def answers(self) -> list[tuple[int, bytes]]:
        """Return the messages for clients since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def disconnect(self, client: int) -> None:
        """Handle the end of a member's or an operator's connection."""
        self._operators.drop(client)
        self._refused.discard(client)
        member = self.roll.leave(client)
        if member is None:
            return
        self._waiting.drop(member)
        self._gathering.drop(member)
        if not self.over:
            if self.has(member):
                self.changes.begin("a connection ended")
            self._unlinked(member)

    def _unlinked(self, member: int) -> None:
        """Handle a member that this end of its connection can no longer reach."""
        meet_anew = self._gathering.number > 0 and self._gathering.under_way
        if not meet_anew or member not in self._gathering.members:
            self._act(self._machine.unlinked(member, time.monotonic()))
            self._regroup_at_the_edge()  # the machine does not wait for newcomers of an epoch that has begun
        elif self._back_until_ns is None:
            self._meet_without_missing()

    def gone(self, member: int) -> None:
        """Handle the launcher's report that a member's process has ended."""
        self.roll.ended.add(member)
        self._act(self._machine.gone(member, time.monotonic()))

    def end_all(self) -> None:
        """Tell all members that the launcher ends them, whatever the machine decides meanwhile."""
        for member in self.roll:
            self._tell(member, messages.Ends())

    def expire(self, now_ns: int) -> None:
        if now_ns >= self._ticked_ns + TICK_NS and not self.over:
            self._ticked_ns = now_ns
            if self._back_until_ns is not None and now_ns > self._back_until_ns and self.ended is None:
                self._back_until_ns = None
                for member in self.roll.missing(self._members):
                    self._unlinked(member)
            if self._shortage.lasts and self.ended is None:
                self._meet_without_missing()
            self._meet_without_blamed(now_ns)
            for member, found in self.roll.look(self._machine.doubted):
                if found == "ask":
                    self._tell(member, messages.Asks())
                else:
                    self._unlinked(member)
            self._regroup_at_the_edge()  # a newcomer may have come back after the others have said that they wait for it
            self._act(self._machine.tick(now_ns * 1e-9))

    def deadline_ns(self) -> int | None:
        """Time at which `expire` is due next, or None."""
        return None if self.over else self._ticked_ns + TICK_NS

    def is_over(self, world: int) -> bool:
        """Return whether no member is connected any more, and `world` members were."""
        return len(self.roll) == 0 and len(self.roll.known) >= world

    def _come(self, client: int, message: messages.Comes) -> None:
        member = message.member
        if message.generation != self._gathering.number or self._shortage.lasts:
            return  # the others have begun to meet once more since, or will when there are enough
        expected = member in self._gathering.members and member not in self._gathering.present
        if self._gathering.number == 0:
            expected = expected and self.roll.member_of(client) is None and member not in self.roll.known
        else:
            expected = expected and self.roll.member_of(client) == member
        if not expected:
            raise FrameError(f"{message.who} comes as member {member}, which it is not")
        self._gathering.present.add(member)
        self.roll.enter(client, member, message.who)

    def _come_back(self, client: int, message: messages.Back) -> None:
        member = message.member
        if self.roll.member_of(client) is not None or member in self.roll:
            raise FrameError(f"{message.who} comes back as member {member}, which is here")
        if message.generation is not None and message.generation > self._gathering.number:
            self.end(f"{message.who} has met others since the journal was written: it is an old copy")
        gone_on = member in self._shut_out or member not in self._gathering.members
        if self.ended is not None or (message.generation is not None and gone_on):
            self._refused.add(client)
            self._answer(client, "the others went on without it" if self.ended is None else self.ended.why)
            return
        self.roll.enter(client, member, message.who)
        self.changes.back(message.who)
        for newcomer, host in self.roll.hosts.items():
            self._tell(member, self._waiting.welcome(newcomer, host))
        if member not in self._gathering.members:
            self._await(member, message.host, message.state)
        elif not self._gathering.under_way:
            self._gathering.present.add(member)
        elif not self.roll.missing(self._members):
            self._meet_without_missing()

    def _await(self, member: int, host: str, state: str | None) -> None:
        """Register a process that waits to become that member, and announce it to the others."""
        if state is not None and len(self._members) < self._limits.members_max:
            self._waiting.states[member] = state
        self._admission.take(member)
        self.roll.hosts[member] = host
        self._write(lambda journal: journal.change(self.generation()))
        for other in self.roll:
            self._tell(other, self._waiting.welcome(member, host))

    def _write(self, write: Callable[[Journal], None]) -> None:
        """Apply `write` to the journal, if there is one."""
        if self.journal is not None:
            write(self.journal)

    def _join(self, client: int, message: messages.Joins) -> None:
        if self.roll.member_of(client) is not None:
            raise FrameError("a member wants to become one")
        if (why := self._closed or self._admission.refusal(message)) is not None:
            self._answer(client, why)
            return
        known = self._shut_out.union(self._members, self._gathering.members, self.roll.known)
        member = self._admission.number(message, known)
        self.roll.enter(client, member, f"rank {member} on {message.host} (process {message.process})")
        self._await(member, message.host, message.state)
        if len(self._members) >= self._limits.members_max:
            self.changes.full(self.roll.name(member), self._limits.members_max)

    def _note(self, member: int, note: bytes) -> None:
        if member not in self._gathering.present:
            if member in self._gathering.members:
                return  # a note to the previous generation's machine
            self._waiting.note(member, note)
            if self._gathering.under_way or self._shortage.lasts or not self._waiting.is_ready(member):
                return
        actions = self._machine.note(member, note, time.monotonic())
        if actions and member in self._members:
            self.changes.begin("another rank missed it")
        self._act(actions)

    def _regroup_at_the_edge(self) -> None:
        members = self._gathering.due(self.roll) if self.ended is None else None
        if members is not None and not (self._back_until_ns is not None and self.roll.missing(members)):
            self._members = members
            self._left.difference_update(members)
            self._meet_without_missing()

    def _meet_without_missing(self) -> None:
        """Call the members to a meeting, without those that were lost on the way or have not come back."""
        self._back_until_ns = None
        missing = self.roll.missing(self._members)
        self._meet_without(dict.fromkeys(missing, "it could not be heard when the job's ranks met"))

    def _meet_without_blamed(self, now_ns: int) -> None:
        """Call the members to another meeting if some could not meet, without the member to blame for that."""
        if self._gathering.under_way and self.ended is None:
            blamed = self._gathering.to_blame(now_ns, round(self._limits.heartbeat_s / 2 * 1e9))
            if blamed is not None:
                member, count = blamed
                why = f"{count} of the others could not reach it when the job's ranks met"
                self._meet_without({member: why})

    def _meet_without(self, lost: Mapping[int, str]) -> None:
        """Call the members to a meeting without those in `lost`, each with the reason."""
        for each, why in lost.items():
            name = self.roll.name(each)
            self.changes.dropped(name, why)
            self._shut_out.add(each)
            self.condemned.add(each)
            if each in self.roll:
                number = self._gathering.epochs_before + self._epoch + 1
                self._answer(self.roll.client_of(each), f"evicted in epoch {number}: {why}")
            if self._gathering.under_way:
                self._stores.refuse(self._gathering.members.index(each), f"{name} is lost")
        self._members = tuple(each for each in self._members if each not in lost)
        self._meet_if_enough(tuple(lost))

    def _meet_if_enough(self, lost: tuple[int, ...]) -> None:
        """Call the remaining members to a meeting, once enough are left or wait to join. Joiners only fill up to the minimum."""
        left, least = len(self._members), self._limits.members_min
        if not any(each in self._members for each in self._gathering.holders):
            self.end("nobody who holds the model's state is left", lost=lost)
            return
        waiting = [each for each in self._waiting if each in self.roll and each not in self.roll.silent]
        if left + len(waiting) >= least:
            self._shortage.end()
            self._regroup((*self._members, *waiting[: max(0, least - left)]))
        elif (why := self._shortage.go_on(left, self.roll.names(lost))) is not None:
            self.end(why, lost=lost)

    def _regroup(self, members: Sequence[int]) -> None:
        self._gathering.begin(members, self._epoch)
        self._epoch, self._members = 0, tuple(members)
        self.changes.forget()
        self._finished.clear()
        self._machine = self._limits.machine(len(members))
        self._write(lambda journal: journal.change(self.generation()))
        order = messages.Regroup(
            generation=self._gathering.number, members=self._members, store=self._stores.another()
        )
        for each in members:
            self._waiting.drop(each)
            self._tell(each, order)

    def _ask_to_leave(self, client: int, message: messages.MustLeave) -> None:
        why = self._closed
        if why is None and self._gathering.under_way:
            why = "the job's ranks are just meeting those that have joined; ask again"
        elif why is None:
            here = [each for each in self._members if each in self.roll]
            why = self._operators.ask(client, message.member, here, self._limits.members_min)
        if why is None:
            self._tell(message.member, message)
        else:
            self._answer(client, why)

    def _answer_operators(self, evicted: Sequence[int] = ()) -> None:
        """Answer operators whose members are no longer there."""
        ended, of = self.over or self.ended is not None, len(self._gathering.members)
        answers = self._operators.answers(self._members, evicted, ended=ended, of=of, name=self.roll.name)
        self._answers += [(client, msgspec.json.encode(answer)) for client, answer in answers]

    def _act(self, actions: Sequence[_native.MemberAction]) -> None:
        waiting = deque(actions)
        while waiting:
            action = waiting.popleft()
            match action.kind:
                case "send" if action.member is not None and action.bytes is not None:
                    if action.member in self.roll:
                        self._tell(action.member, messages.Orders(order=action.bytes))
                case "write":
                    self._write(operator.methodcaller("append", action.bytes or b""))
                    self._decided(action)
                    waiting.extend(self._machine.written(time.monotonic()))
                case "wait":
                    self.changes.waits(action.step or 0, self.roll.names(action.members), self._limits)
                    for newcomer in self._waiting.needed():
                        self._note(*newcomer)
                case "kill" if action.member is not None:
                    # A member that has left after the end of its script ends by itself.
                    if action.member in self.roll or action.member not in self._finished:
                        self.condemned.add(action.member, action.why)
                case "let_go" if action.member is not None:
                    self.changes.ended_early(action.member, self._finished.pop(action.member, 0), self.roll)
                    if action.member in self.roll:
                        self._tell(action.member, messages.Over())
                case "end":
                    self.ended = Ended(why=action.why or "", lost=tuple(action.members))
                    self._answer_operators()

    def _tell(self, member: int, message: messages.FromCoordinator) -> None:
        self._answers.append((self.roll.client_of(member), msgspec.json.encode(message)))

    def _answer(self, client: int, why: str) -> None:
        self._answers.append((client, msgspec.json.encode(messages.Answer(done=False, text=why))))

    def _follow(self, decision: _native.MemberAction) -> None:
        self._members, self._epoch = tuple(decision.members), decision.epoch or 0
        self._shut_out.update(decision.evicted)
        self._gathering.decide(self._epoch, self._members, planned=decision.step is None)

    def _decided(self, decision: _native.MemberAction) -> None:
        before, lost = self._members, decision.evicted
        self._waiting.enough()
        self._follow(decision)
        epoch = self._gathering.epochs_before + self._epoch
        self._left.update(set(before) - {*self._members, *lost})
        if self._gathering.under_way:
            self._founded(epoch)
        else:
            self.changes.decided(epoch, decision, before, self._gathering.members, self.roll)
        self.changes.forget()
        self._answer_operators(lost)
        self._end_if_finished()

    def _founded(self, epoch: int) -> None:
        """Mark the generation as met, report its newcomers, and pass on notes of members that wait to join."""
        self._gathering.under_way, self.founded = False, True
        self._gathering.holders = self._members
        if self._gathering.number == 0:
            self.changes.founded(len(self._members))
            return
        newcomers = [each for each in self._members if each in self.roll.hosts]
        self.changes.joined(epoch, self.roll.names(newcomers), len(self._members))
        for each in self._members:
            self.roll.hosts.pop(each, None)
        for newcomer in self._waiting.due():
            self._note(*newcomer)

    def _finish(self, member: int, steps: int) -> None:
        self._finished[member] = steps
        for other in self.roll:
            if other != member:
                self._tell(other, messages.OtherFinished(member=member, steps=steps))
        self._end_if_finished()

    def _end_if_finished(self) -> None:
        here = [member for member in self._members if member in self._gathering.members]
        if here and not self._gathering.under_way and all(member in self._finished for member in here):
            self.over = True
            self.changes.end()
            for member in self.roll:
                self._tell(member, messages.Over())
            self._answer_operators()

"""Coordinator of an elastic job in its launcher: the native machine behind a server, with log messages for people.

Each decision is in the journal, if there is one, before any member hears of it, so that another launcher can resume from there. A
member is known by a number: a founder's is its rank at the start, and joiners get the next ones.

A *generation* is a meeting of members, which then have a wire and a machine of their own. The founders are the first. When an epoch
with newcomers has begun, each member waits between two steps until all do, and the next generation meets: a new machine, which
knows nothing of this one, replaces it. If a member dies during the meeting, the others meet once more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from hocket import _native
from hocket.job.store.frames import FrameError
from hocket.members import member_messages as messages
from hocket.members.admission import Admission
from hocket.members.change_log import ChangeLog
from hocket.members.condemned import Condemned
from hocket.members.convening import Convening
from hocket.members.gathering import Gathering
from hocket.members.journal import Generation, Journal
from hocket.members.member_limits import Limits
from hocket.members.operators import Operators
from hocket.members.outbox import Outbox
from hocket.members.preparation import Preparation
from hocket.members.roll import Roll
from hocket.members.roster import Ended, Roster
from hocket.members.stores import Stores
from hocket.members.waiting import Waiting

TICK_NS = 50_000_000
"""Longest delay until the machine notices that a time is up."""


class Coordination:
    """Coordinator that decides which members go on: a `Machine` for a store's server. The launcher reads its public attributes."""

    def __init__(
        self,
        founders: int,
        limits: Limits,
        stores: Stores,
        kept: range = range(0),
        gathering: Gathering | None = None,
    ) -> None:
        """Coordinate a job that `founders` members begin, and that others may join at `stores`. `kept`: numbers reserved for
        replacements that the launcher starts; `gathering`: the members' last one, if the job goes on."""
        self._limits, self._stores = limits, stores
        self.journal: Journal | None = None
        """Journal to which decisions are written."""
        self._machine = limits.machine(founders)
        self._gathering = gathering or Gathering(range(founders))
        self.roll = Roll(limits.heartbeat_s)
        """Connected members."""
        self.roster = Roster(limits, self.roll)
        """Members, and where the job stands."""
        self.changes = ChangeLog()
        self.condemned = Condemned(self.roll, self.changes)
        self._outbox = Outbox(self.roll)
        self._admission = Admission(founders, kept)
        self._waiting = Waiting(self._admission, self._outbox, self._keep)
        gathering, roster, outbox = self._gathering, self.roster, self._outbox
        self._preparation = Preparation(stores, outbox, roster, gathering, self._waiting)
        self._operators = Operators(gathering, roster, outbox)
        self._convening = Convening(
            gathering,
            stores,
            roster,
            self._waiting,
            outbox,
            condemned=self.condemned,
            changes=self.changes,
        )
        self._refused: set[int] = set()
        """Clients that came back and were refused."""
        self._ticked_ns = 0

    @classmethod
    def restored(cls, journal: Journal, limits: Limits, stores: Stores) -> Coordination:
        """Resume from the journal of a coordinator that died. Members come back by themselves; if they were about to meet, they
        meet again."""
        generation = journal.generation
        decisions, _ = _native.read_journal(journal.records)
        gathering = Gathering.restored(generation, met=bool(decisions))
        kept = range(*journal.served.replacements)
        made = cls(len(generation.members), limits, stores, kept, gathering)
        made.journal = journal
        made._machine = limits.machine(len(generation.members), journal.records)
        made._admission.next_member = generation.next_member
        made.roster.members = generation.members
        for decision in decisions:
            made._follow(decision)
        made.roster.founded = True
        made.changes.account.begin(len(made.roster.members), time.monotonic(), counts_first=False)
        made._convening.back_until_ns = time.monotonic_ns() + round(limits.heartbeat_s * 1e9)
        return made

    def generation(self) -> Generation:
        """Generation that meets, or has met, for the journal."""
        return self._gathering.kept(self._admission.next_member)

    def end(self, why: str, *, lost: Sequence[int] = ()) -> None:
        """Tell all members that the job ends."""
        if self.roster.over or self.roster.ended is not None:
            return
        self.roster.ended = Ended(why=why, lost=tuple(lost))
        self.changes.end()
        self._outbox.tell_all(messages.Answer(done=False, text=f"the job ends: {why}"))
        self._operators.answer()

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Handle a message of a member or an operator. FrameError: the message is not allowed now."""
        match messages.read_from_client(payload):
            case messages.MustLeave() as message:
                self._operators.ask(client, message)
            case messages.Joins() as message:
                self._join(client, message)
            case _ if self.roster.over or client in self._refused:
                pass
            case messages.Back() as message:
                self._come_back(client, message)
            case _ if self.roster.ended is not None:
                pass
            case messages.Comes() as message:
                self._convening.come(client, message)
            case message:
                self._take(client, message, now_ns)

    def _take(self, client: int, message: messages.FromMember, now_ns: int) -> None:  # noqa: PLR0912  # a case per message
        member = self.roll.member_of(client)
        if isinstance(message, messages.Asks):
            self._outbox.send(client, messages.Hears())
        if member is None:
            # A founder that still loads, or a process that was refused.
            if isinstance(message, messages.Asks | messages.Ready):
                return
            raise FrameError("a member's message before its name")
        if member in self.roster.shut_out:  # the refusal is on its way
            return
        if self.roll.heard(member):
            self._outbox.tell(member, messages.Unheard())
        match message:
            case messages.Notes():
                self._note((member, message.note))
            case messages.Ready():
                self._waiting.ready(member)
                self._note(*self._preparation.look(postponed=self._convening.postponed))
            case messages.Prepared():
                self._note(*self._preparation.answered(member, message))
            case messages.AtEdge():
                self._gathering.wait_at_edge(member, message.epoch)
                self._meet(self._convening.at_the_edge())
            case messages.Gives() | messages.Lacks():
                for other, gives in self._gathering.hand_over(member, message):
                    self._outbox.tell(other, gives)
            case messages.CannotMeet() if 0 < message.generation == self._gathering.number:
                self._gathering.complain(member, message.missing, now_ns)
            case messages.Finished():
                self._finish(member, message.steps)
            case messages.Resumed() if self.roster.members[:1] == (member,):
                self.changes.resumed(self._gathering.epochs_before, member, message)
            case messages.Committed() if self.roster.has(member) or member in self.roster.left:
                joining = self._gathering.awaits(self.roster.members, self._waiting.states)
                self.changes.stands(message, joining=joining)

    def answers(self) -> list[tuple[int, bytes]]:
        """Return the messages for clients since the last call."""
        return self._outbox.take()

    def disconnect(self, client: int) -> None:
        """Handle the end of a member's or an operator's connection."""
        self._operators.drop(client)
        self._refused.discard(client)
        member = self.roll.leave(client)
        if member is None:
            return
        self._waiting.drop(member)
        self._gathering.drop(member)
        if not self.roster.over:
            if self.roster.has(member):
                self.changes.begin("a connection ended")
            self._unlinked(member)

    def _unlinked(self, member: int) -> None:
        """Handle a member that this end of its connection can no longer reach."""
        self._note(*self._preparation.lost(member))
        if not self._convening.concerns(member):
            self._act(self._machine.unlinked(member, time.monotonic()))
            # The machine does not wait for newcomers of an epoch that has begun.
            self._meet(self._convening.at_the_edge())
        elif self._convening.back_until_ns is None:
            self._meet(self._convening.without_missing())

    def gone(self, member: int) -> None:
        """Handle the launcher's report that a member's process has ended."""
        self.roll.ended.add(member)
        self._act(self._machine.gone(member, time.monotonic()))

    def end_all(self) -> None:
        """Tell all members that the launcher ends them, whatever the machine decides meanwhile."""
        self._outbox.tell_all(messages.Ends())

    def expire(self, now_ns: int) -> None:
        if now_ns < self._ticked_ns + TICK_NS or self.roster.over:
            return
        self._ticked_ns = now_ns
        convening, ended = self._convening, self.roster.ended is not None
        if convening.back_until_ns is not None and now_ns > convening.back_until_ns and not ended:
            convening.back_until_ns = None
            for member in self.roster.missing:
                self._unlinked(member)
        if convening.postponed and not ended:
            self._meet(convening.without_missing())
        self._meet(convening.without_blamed(now_ns))
        for member, found in self.roll.look(self._machine.doubted):
            if found == "ask":
                self._outbox.tell(member, messages.Asks())
            else:
                self._unlinked(member)
        # A newcomer may have come back after the others have said that they wait for it.
        self._meet(convening.at_the_edge())
        self._note(*self._preparation.expired(now_ns))
        self._note(*self._preparation.look(postponed=convening.postponed))
        self._act(self._machine.tick(now_ns * 1e-9))

    def deadline_ns(self) -> int | None:
        """Time at which `expire` is due next, or None."""
        return None if self.roster.over else self._ticked_ns + TICK_NS

    def is_over(self, world: int) -> bool:
        """Return whether no member is connected any more, and `world` members were."""
        return len(self.roll) == 0 and len(self.roll.known) >= world

    def _come_back(self, client: int, message: messages.Back) -> None:
        member, roster, gathering = message.member, self.roster, self._gathering
        if self.roll.member_of(client) is not None or member in self.roll:
            raise FrameError(f"{message.who} comes back as member {member}, which is here")
        if message.generation is not None and message.generation > gathering.number:
            self.end(f"{message.who} has met others since the journal was written: it is an old copy")
        has_met = message.generation is not None
        gone_on = member in roster.shut_out or (has_met and member not in gathering.members)
        if roster.ended is not None or gone_on:
            self._refused.add(client)
            why = "the others went on without it" if roster.ended is None else roster.ended.why
            self._outbox.refuse(client, why)
            return
        self.roll.enter(client, member, message.who)
        self.changes.back(message.who)
        self._waiting.introduce(member)
        if member not in gathering.members:
            self._waiting.enter(member, message.host, None if roster.full else message.state)
        elif not gathering.under_way:
            gathering.present.add(member)
        elif not roster.missing:
            self._meet(self._convening.without_missing())

    def _join(self, client: int, message: messages.Joins) -> None:
        if self.roll.member_of(client) is not None:
            raise FrameError("a member wants to become one")
        if (why := self.roster.closed or self._admission.refusal(message)) is not None:
            self._outbox.refuse(client, why)
            return
        known = self.roster.shut_out.union(self.roster.members, self._gathering.members, self.roll.known)
        member = self._admission.number(message, known)
        self.roll.enter(client, member, f"rank {member} on {message.host} (process {message.process})")
        self._waiting.enter(member, message.host, None if self.roster.full else message.state)
        if self.roster.full:
            self.changes.full(self.roll.name(member), self._limits.members_max)

    def _keep(self) -> None:
        """Write down who meets, or has met."""
        if self.journal is not None:
            self.journal.change(self.generation())

    def _note(self, *notes: tuple[int, bytes]) -> None:
        """Handle notes of members, or of processes that wait to become members."""
        for member, note in notes:
            if member not in self._gathering.present:
                if member in self._gathering.members:
                    continue  # a note to the previous generation's machine
                self._waiting.note(member, note)
                if not self._waiting.may_be_heard(member):
                    self._note(*self._preparation.look(postponed=self._convening.postponed))
                    continue
                if self._gathering.under_way or self._convening.postponed:
                    continue
            actions = self._machine.note(member, note, time.monotonic())
            if actions and self.roster.has(member):
                self.changes.begin("another rank missed it")
                # Others may have to take a lost member's place before the machine decides.
                self._note(*self._preparation.forget())
            self._act(actions)

    def _meet(self, action: _native.MemberAction | None) -> None:
        """Call members to the meeting, or end the job for which there are too few."""
        if action is None:
            return
        if action.kind == "end":
            self.end(action.why or "", lost=action.members)
            return
        members = tuple(action.members)
        self._gathering.begin(members, self.roster.epoch)
        self.roster.meet(members)
        self.changes.forget()
        self._machine = self._limits.machine(len(members))
        self._keep()
        prepared = self._preparation.take(members)
        order = messages.Regroup(
            generation=self._gathering.number,
            members=members,
            store=prepared or self._stores.another(),
            prepared=prepared is not None,
        )
        for each in members:
            self._waiting.drop(each)
            self._outbox.tell(each, order)

    def _act(self, actions: Sequence[_native.MemberAction]) -> None:
        waiting = deque(actions)
        while waiting:
            action = waiting.popleft()
            match action.kind:
                case "send" if action.member is not None and action.bytes is not None:
                    if action.member in self.roll:
                        self._outbox.tell(action.member, messages.Orders(order=action.bytes))
                case "write":
                    if self.journal is not None:
                        self.journal.append(action.bytes or b"")
                    self._decided(action)
                    waiting.extend(self._machine.written(time.monotonic()))
                case "wait":
                    self.changes.waits(action.step or 0, self.roll.names(action.members), self._limits)
                    self._note(*self._waiting.needed())
                case "kill" if action.member is not None:
                    # A member that has left after the end of its script ends by itself.
                    if action.member in self.roll or action.member not in self.roster.finished:
                        self.condemned.add(action.member, action.why)
                case "let_go" if action.member is not None:
                    steps = self.roster.finished.pop(action.member, 0)
                    self.changes.ended_early(action.member, steps, self.roll)
                    if action.member in self.roll:
                        self._outbox.tell(action.member, messages.Over())
                case "end":
                    self.roster.ended = Ended(why=action.why or "", lost=tuple(action.members))
                    self._operators.answer()

    def _follow(self, decision: _native.MemberAction) -> None:
        self.roster.follow(decision)
        self._gathering.decide(self.roster.epoch, self.roster.members, planned=decision.step is None)

    def _decided(self, decision: _native.MemberAction) -> None:
        before = self.roster.members
        self._waiting.enough()
        self._follow(decision)
        epoch = self._gathering.epochs_before + self.roster.epoch
        if self._gathering.under_way:
            self._founded(epoch)
        else:
            self.changes.decided(epoch, decision, before, self._gathering.members, self.roll)
        self.changes.forget()
        self._operators.answer(decision.evicted)
        self._end_if_finished()

    def _founded(self, epoch: int) -> None:
        """Mark the generation as met, report its newcomers, and pass on notes of members that wait to join."""
        members = self._gathering.holders = self.roster.members
        self._gathering.under_way, self.roster.founded = False, True
        if self._gathering.number == 0:
            self.changes.founded(len(members))
            return
        self.changes.joined(epoch, self.roll.names(self._waiting.met(members)), len(members))
        self._waiting.anew()

    def _finish(self, member: int, steps: int) -> None:
        self.roster.finished[member] = steps
        self._outbox.tell_all(messages.OtherFinished(member=member, steps=steps), but=member)
        self._end_if_finished()

    def _end_if_finished(self) -> None:
        here = [member for member in self.roster.members if member in self._gathering.members]
        if here and not self._gathering.under_way and self.roster.finished.keys() >= set(here):
            self.roster.over = True
            self.changes.end()
            self._outbox.tell_all(messages.Over())
            self._operators.answer()

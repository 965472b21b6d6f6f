"""Generation of an elastic job's members that meets, or has met: one after the other, each with a machine of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hocket import _native
from hocket.members.journal import Generation
from hocket.members.member_messages import Gives, Lacks
from hocket.members.roll import Roll


class Gathering:
    """Current generation; the founders are the first.

    Attributes:
        number: index of the generation.
        members: its members, by rank.
        under_way: True until all of its members have met.
        present: members that have met the others.
        holders: members that have the job's state.
        epochs_before: number of epochs in earlier generations.
    """

    def __init__(self, members: Sequence[int]) -> None:
        self.number = 0
        self.members = tuple(members)
        self.under_way = True
        self.present: set[int] = set()
        self.holders: tuple[int, ...] = ()
        self.epochs_before = 0
        self._epochs: dict[int, tuple[tuple[int, ...], bool]] = {}
        """Epochs since the last loss: members, and True if some of them replace lost ones, without which there are too few."""
        self._at_edge: dict[int, int] = {}
        self._gives: Gives | None = None
        self._lacking: set[int] = set()
        """Members that wait for the data which another one gives."""
        self._complaints: dict[int, frozenset[int]] = {}
        """Members that each member could not meet."""
        self._complained_ns = 0
        """Time of the first complaint."""

    @classmethod
    def restored(cls, generation: Generation, *, met: bool) -> Gathering:
        """Restore the generation of a coordinator that has died. `met`: all of its members had met."""
        made = cls(generation.members)
        made.number, made.epochs_before, made.under_way = (
            generation.number,
            generation.epochs_before,
            not met,
        )
        made.holders = generation.members if met else generation.holders
        return made

    def kept(self, next_member: int) -> Generation:
        """Return the generation's record for the journal. `next_member`: as there."""
        return Generation(
            number=self.number,
            members=self.members,
            holders=self.holders,
            next_member=next_member,
            epochs_before=self.epochs_before,
        )

    @property
    def awaited(self) -> Collection[int]:
        """Members that have not met the others yet."""
        return [each for each in self.members if each not in self.present]

    def awaits(self, members: Collection[int], taking: Collection[int]) -> bool:
        """Return whether newcomers are awaited: some of an epoch's `members`, or processes that are `taking` the state."""
        return bool(taking) or any(each not in self.members for each in members)

    def begin(self, members: Sequence[int], epochs: int) -> None:
        """Begin the next generation, which is about to meet. `epochs`: number of epochs in this one."""
        self.number += 1
        self.epochs_before += epochs
        self.members, self.under_way = tuple(members), True
        self.present.clear()
        self._epochs.clear()
        self._at_edge.clear()
        self._complaints.clear()
        self._gives = None
        self._lacking.clear()

    def complain(self, member: int, missing: Collection[int], now_ns: int) -> None:
        """Record that a member gives up on the meeting because of these, or, if empty, of all that have not come yet."""
        if not self._complaints:
            self._complained_ns = now_ns
        self._complaints[member] = frozenset(missing or self.awaited) - {member}

    def to_blame(self, now_ns: int, patience_ns: int) -> tuple[int, int] | None:
        """Return the member without which the others should meet, and how many complain of it; None while that is not known.

        It is known when all members complain or are complained of, or `patience_ns` after the first complaint. A member that is
        late only because it could not reach a third one is not blamed: a complaint against a complainer counts only if it is
        mutual.
        """
        pairs = [(by, of) for by, missing in self._complaints.items() for of in missing]
        accused = {of for _, of in pairs}
        all_have = all(each in self._complaints or each in accused for each in self.members)
        if not pairs or not (all_have or now_ns > self._complained_ns + patience_ns):
            return None
        heeded = [(by, of) for by, of in pairs if by in self._complaints.get(of, {by})]
        return _native.evicted(heeded or pairs)[0]

    def decide(self, epoch: int, members: Sequence[int], *, planned: bool) -> None:
        """Record the members of an epoch. A `planned` epoch may never begin."""
        if not planned:
            self._epochs.clear()
        filled = not planned and any(each not in self.members for each in members)
        self._epochs[epoch] = tuple(members), filled

    def wait_at_edge(self, member: int, epoch: int) -> None:
        """Record that a member has applied its last step, and waits for the newcomers of an epoch that has begun with them."""
        self._at_edge[member] = epoch

    def hand_over(self, member: int, message: Gives | Lacks) -> Iterator[tuple[int, Gives]]:
        """Record data that a member gives to newcomers of a generation, or its lack of them. Yield the data for each member that
        lacks them."""
        if message.generation != self.number or member not in self.members:
            return
        if isinstance(message, Lacks):
            self._lacking.add(member)
        else:
            self._gives = self._gives or message
        if self._gives is not None:
            yield from ((each, self._gives) for each in self._lacking)
            self._lacking.clear()

    def drop(self, member: int) -> None:
        """Forget a member whose connection has ended."""
        self._at_edge.pop(member, None)
        self._lacking.discard(member)

    def due(self, roll: Roll) -> tuple[int, ...] | None:
        """Members of the next generation, if all members of this one that are in an epoch wait for its newcomers; else None.

        Waiting members make no step, so that no epoch which was planned since can begin.
        """
        if self.under_way:
            return None
        return next(
            (
                members
                for epoch, (members, filled) in self._epochs.items()
                if self._is_due(epoch, members, roll, filled=filled)
            ),
            None,
        )

    def _is_due(self, epoch: int, members: Collection[int], roll: Roll, *, filled: bool) -> bool:
        """Return whether members that are heard wait for an epoch's newcomers. They need nothing of silent ones, and train on
        without them.

        If newcomers are lost, the machine plans an epoch without them, unless this one was `filled`.
        """
        here = [each for each in members if each in self.members]
        heard = [each for each in here if each not in roll.silent]
        newcomers = [each for each in members if each not in here]
        if not newcomers or not heard:
            return False
        come = any(each not in roll.silent for each in newcomers) and all(each in roll for each in members)
        return (come or filled) and all(self._at_edge.get(each) == epoch for each in heard)

"""The generation of an elastic job's members that meets, or has met: one after the other, each with a machine of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hocket import _native
from hocket.launch.journal import Generation
from hocket.launch.member_messages import Gives, Lacks
from hocket.launch.roll import Roll


class Gathering:
    """The founders are the first generation.

    Attributes:
        number: of the generation.
        members: of it, by rank.
        under_way: whether they are about to meet; else all have.
        present: those that have met the others.
        epochs_before: of generations before.
        filled: whether the epoch in force has newcomers in the place of lost ones, without whom there are too few.
    """

    def __init__(self, members: Sequence[int]) -> None:
        """The founders are about to meet."""
        self.number = 0
        self.members = tuple(members)
        self.under_way = True
        self.present: set[int] = set()
        self.epochs_before = 0
        self.filled = False
        self._at_edge: dict[int, int] = {}
        self._gives: Gives | None = None
        self._lacking: set[int] = set()
        """Members that wait for that."""
        self._complaints: dict[int, frozenset[int]] = {}
        """By member: whom it could not meet."""
        self._complained_ns = 0
        """When the first of them did."""

    @classmethod
    def restored(cls, generation: Generation, *, met: bool) -> Gathering:
        """That of a coordinator which has died. `met`: all had."""
        made = cls(generation.members)
        made.number, made.epochs_before, made.under_way = (
            generation.number,
            generation.epochs_before,
            not met,
        )
        return made

    def kept(self, next_member: int) -> Generation:
        """For the journal. `next_member`: as there."""
        return Generation(
            number=self.number,
            members=self.members,
            next_member=next_member,
            epochs_before=self.epochs_before,
        )

    @property
    def awaited(self) -> Collection[int]:
        """Those that are still to meet the others."""
        return [each for each in self.members if each not in self.present]

    def begin(self, members: Sequence[int], epochs: int) -> None:
        """The next generation is about to meet; there were so many epochs in this one."""
        self.number += 1
        self.epochs_before += epochs
        self.members, self.under_way, self.filled = tuple(members), True, False
        self.present.clear()
        self._at_edge.clear()
        self._complaints.clear()
        self._gives = None
        self._lacking.clear()

    def complain(self, member: int, missing: Collection[int], now_ns: int) -> None:
        """That member gives up on the meeting because of these, or of all that have not come yet."""
        if not self._complaints:
            self._complained_ns = now_ns
        self._complaints[member] = frozenset(missing or self.awaited) - {member}

    def to_blame(self, now_ns: int, patience_ns: int) -> tuple[int, int] | None:
        """The member without whom the others should meet, and how many complain of it.

        That is known when all have complained who are not complained of, or `patience_ns` after the first has. Who has not come
        to another member because it could not reach a third one is not to blame: the complaint counts against one who complains
        too only if they complain of each other.
        """
        pairs = [(by, of) for by, missing in self._complaints.items() for of in missing]
        accused = {of for _, of in pairs}
        all_have = all(each in self._complaints or each in accused for each in self.members)
        if not pairs or not (all_have or now_ns > self._complained_ns + patience_ns):
            return None
        heeded = [(by, of) for by, of in pairs if by in self._complaints.get(of, {by})]
        return _native.evicted(heeded or pairs)[0]

    def wait_at_edge(self, member: int, epoch: int) -> None:
        """That member has applied its last step, and waits for the newcomers of an epoch that has begun with them."""
        self._at_edge[member] = epoch

    def hand_over(self, member: int, message: Gives | Lacks) -> Iterator[tuple[int, Gives]]:
        """That member gives something to those that joined with a generation, or lacks it: to whom it goes now."""
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
        """Its connection has ended."""
        self._at_edge.pop(member, None)
        self._lacking.discard(member)

    def is_due(self, members: Collection[int], epoch: int, roll: Roll) -> bool:
        """Whether the next generation meets: those `members` of an epoch that are of this generation wait for the others of them.

        They need nothing of members that are silent, and train on without these. If newcomers are lost, the machine plans an epoch
        without them, unless this one was `filled`.
        """
        here = [each for each in members if each in self.members]
        heard = [each for each in here if each not in roll.silent]
        newcomers = [each for each in members if each not in here]
        if self.under_way or not newcomers or not heard:
            return False
        come = any(each not in roll.silent for each in newcomers) and all(each in roll for each in members)
        return (come or self.filled) and all(self._at_edge.get(each) == epoch for each in heard)

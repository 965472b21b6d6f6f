"""Processes that wait to become members of an elastic job, as its coordinator knows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from hocket.members.admission import Admission
from hocket.members.member_messages import Welcome
from hocket.members.outbox import Outbox


class Waiting:
    """Each one's note to the machine, which hears of a process when it is ready and its meeting is prepared, or at once while
    members are short: the others would wait for a process without state.

    Attributes:
        states: addresses at which some take the state beside training.
    """

    def __init__(self, admission: Admission, outbox: Outbox, keep: Callable[[], None]) -> None:
        """`admission`: knows which numbers are given; `keep`: writes that down."""
        self._admission, self._outbox, self._keep = admission, outbox, keep
        self._notes: dict[int, bytes] = {}
        self._ready: set[int] = set()
        self._heard: set[int] = set()
        """Processes of which the machine may hear."""
        self._hosts: dict[int, str] = {}
        """Hosts of processes that have not met the members yet."""
        self.states: dict[int, str] = {}
        self._short = False

    def __iter__(self) -> Iterator[int]:
        """Yield processes that have sent their note."""
        return iter(tuple(self._notes))

    def enter(self, member: int, host: str, state: str | None) -> None:
        """Add a process on `host` that waits to become that member, and tell all. `state`: where it takes the state, if it does."""
        self._hosts[member] = host
        if state is not None:
            self.states[member] = state
        self._admission.take(member)
        self._keep()
        self._outbox.tell_all(self._welcome(member))

    def introduce(self, member: int) -> None:
        """Tell a member of all that have not met the others yet."""
        for each in self._hosts:
            self._outbox.tell(member, self._welcome(each))

    def _welcome(self, member: int) -> Welcome:
        return Welcome(member=member, host=self._hosts[member], state=self.states.get(member))

    def met(self, members: Collection[int]) -> list[int]:
        """Note that these have met. Return those that had waited."""
        return [each for each in members if self._hosts.pop(each, None) is not None]

    def note(self, member: int, note: bytes) -> None:
        """Keep a process's first note."""
        self._notes.setdefault(member, note)
        if self._short:
            self._heard.add(member)

    def ready(self, member: int) -> None:
        """Note that a process has as much of the state as it gets beside training."""
        self._ready.add(member)

    def unprepared(self) -> list[int]:
        """Return processes that are ready, and of whom the machine may hear when their meeting is prepared."""
        return [each for each in self._notes if each in self._ready and each not in self._heard]

    def let_in(self, members: Collection[int]) -> list[tuple[int, bytes]]:
        """Note that the machine may hear of these; return what it hears."""
        here = [each for each in members if each in self._notes]
        self._heard.update(here)
        return [(each, self._notes[each]) for each in here]

    def may_be_heard(self, member: int) -> bool:
        """Return whether the machine may hear of a process."""
        return member in self._heard

    def needed(self) -> list[tuple[int, bytes]]:
        """Note that the machine waits for members without which the job cannot go on. Return what it may now hear."""
        self._short = True
        return self.let_in([each for each in self._notes if each not in self._heard])

    def enough(self) -> None:
        """Note that the machine waits no longer."""
        self._short = False

    def anew(self) -> None:
        """Note that there is another machine, which has heard of nobody."""
        self._heard.clear()

    def drop(self, member: int) -> None:
        """Forget a process that meets the others, or is gone."""
        self._notes.pop(member, None)
        self._ready.discard(member)
        self._heard.discard(member)
        self.states.pop(member, None)

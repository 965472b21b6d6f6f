"""A process's way into an elastic job, and what its members know of others on theirs.

A process asks, takes the state if it can, says when it is ready, and is called to a meeting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from hocket import __version__
from hocket.members.meetings import Meetings
from hocket.members.member_messages import FromMember, Joins, Ready, Regroup, Welcome


class Joining:
    """Calls of a process that wants to become a member; processes that wait to, or have, as far as a coordinator has sent them.

    Attributes:
        wanting: addresses of those that take the state beside training, by their numbers; another thread may read it.
        called: called when a meeting is, in the thread that hears of it.
    """

    def __init__(
        self,
        patience_s: float,
        changed: threading.Condition,
        tell: Callable[[FromMember], None],
        meetings: Meetings,
        why_none: Callable[[], str | None],
    ) -> None:
        """Ask for nothing yet. `patience_s`: how long a process waits for the members to meet it; `changed`: the member's lock;
        `tell`: sends a message; `why_none`: why the job takes nobody."""
        self._patience_s, self._changed, self._tell = patience_s, changed, tell
        self._meetings, self._why_none = meetings, why_none
        self.state: str | None = None
        """Address at which this process takes the state beside training."""
        self._hosts: dict[int, str] = {}
        self.wanting: Mapping[int, str] = MappingProxyType({})
        self.called: Callable[[], None] = lambda: None

    def knock(self, host: str, member: int | None, state: str | None = None) -> None:
        """Ask to become a member, with number `member` if the launcher has started this process. `state`: where this process takes
        the state until it is ready."""
        with self._changed:
            self.state = state
            self._tell(Joins(host=host, process=os.getpid(), version=__version__, member=member, state=state))

    def ready(self) -> None:
        """Let the members take this process in: it has as much of the state as it gets beside training."""
        with self._changed:
            self._tell(Ready())

    def is_called(self, who: str) -> bool:
        """Return whether a meeting was called with this process, `who`. RendezvousError: there will be none."""
        with self._changed:
            return self._meetings.is_called(who, self._why_none)

    def meeting(self, who: str) -> Regroup:
        """Wait until the members wait for this process between two steps. Return their meeting.

        RendezvousError: the coordinator refuses, the job ends, or its members do not come to the end of a step in time.
        """
        when = "they meet newcomers at the end of a step"
        with self._changed:
            return self._meetings.later(0, self._patience_s, who=who, when=when, why_none=self._why_none)

    def welcome(self, message: Welcome) -> None:
        """Add another process that waits."""
        self._hosts[message.member] = message.host
        if message.state is not None:
            self.wanting = MappingProxyType({**self.wanting, message.member: message.state})

    def met(self, members: Collection[int]) -> None:
        """Note that these members meet: they wait no longer."""
        left = {each: address for each, address in self.wanting.items() if each not in members}
        self.wanting = MappingProxyType(left)
        self.called()

    def hosts_of(self, members: Collection[int]) -> dict[int, str]:
        """Return the host of each."""
        return {each: self._hosts.get(each, "an unknown host") for each in members}

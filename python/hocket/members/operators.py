"""Operators that wait until a member of an elastic job has left: the coordinator's side of `hocket leave`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from hocket.members.member_messages import Answer


class Operators:
    """Operators whose members are still there. A client is a connection's number."""

    def __init__(self) -> None:
        self._wants: dict[int, int] = {}

    def ask(self, client: int, member: int, here: Collection[int], members_min: int) -> str | None:
        """Register a client that wants a member to leave. Return why that cannot be, or None: of members that train `here`,
        `members_min` must stay."""
        if member not in here:
            return f"rank {member} does not train; ranks {', '.join(map(str, here))} do"
        leaving = set(self._wants.values()) - {member}
        if len(here) - len(leaving) <= members_min:
            return f"the job must have {members_min} ranks, and would have fewer without rank {member}"
        self._wants[client] = member
        return None

    def drop(self, client: int) -> None:
        """Forget a client that waits no longer."""
        self._wants.pop(client, None)

    def answers(
        self,
        members: Collection[int],
        evicted: Collection[int],
        *,
        ended: bool,
        of: int,
        name: Callable[[int], str],
    ) -> Iterator[tuple[int, Answer]]:
        """Answers by client, for operators whose members have gone, or whose job has ended; they then wait no longer.

        Args:
            members: members that go on.
            evicted: members that were lost just now.
            ended: True if the job has ended.
            of: largest number of members since they met.
            name: name of a member, for people.
        """
        for client, member in tuple(self._wants.items()):
            who = name(member)
            if member in members and not ended:
                continue
            del self._wants[client]
            if member in members:
                yield client, Answer(done=False, text=f"the job ended before {who} could leave")
            elif member in evicted:
                yield client, Answer(done=False, text=f"{who} was lost before it could leave in order")
            else:
                yield (
                    client,
                    Answer(done=True, text=f"{who} has left, and {len(members)} of {of} ranks go on"),
                )

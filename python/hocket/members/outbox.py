"""Messages of an elastic job's coordinator, until its server sends them."""

from __future__ import annotations

import msgspec

from hocket.members.member_messages import Answer, FromCoordinator
from hocket.members.roll import Roll


class Outbox:
    """Messages by client, the number of a connection; members are connected ones on the `roll`."""

    def __init__(self, roll: Roll) -> None:
        self._roll = roll
        self._messages: list[tuple[int, bytes]] = []

    def take(self) -> list[tuple[int, bytes]]:
        """Return the messages since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def send(self, client: int, message: FromCoordinator) -> None:
        self._messages.append((client, msgspec.json.encode(message)))

    def refuse(self, client: int, why: str) -> None:
        """Answer a client that its request is not met, or that it may not become or stay a member."""
        self.send(client, Answer(done=False, text=why))

    def tell(self, member: int, message: FromCoordinator) -> None:
        self.send(self._roll.client_of(member), message)

    def tell_all(self, message: FromCoordinator, *, but: int | None = None) -> None:
        """Tell all members but one."""
        for member in self._roll:
            if member != but:
                self.tell(member, message)

"""Member numbers for processes that join an elastic job. Each is given once; some are reserved for the launcher's processes."""

from __future__ import annotations

from collections.abc import Container

from hocket import __version__
from hocket.job.store.frames import FrameError
from hocket.members.member_messages import Joins
from hocket.members.place_messages import Arrives


class Admission:
    """Member numbers given and reserved. `next_member` goes to the next process that asks for no particular one."""

    def __init__(self, founders: int, kept: range) -> None:
        """Start with the founders only. `kept`: numbers reserved for processes that ask for them."""
        self._kept = kept
        self.next_member = max(founders, kept.stop)

    def number(self, message: Joins, known: Container[int]) -> int:
        """Member number for a joining process. FrameError: it asks for one that is not reserved, or that is in `known`."""
        if message.member is None:
            return self.next_member
        if message.member not in self._kept or message.member in known:
            raise FrameError(
                f"a process on {message.host} asks to be member {message.member}, which it is not"
            )
        return message.member

    def take(self, member: int) -> None:
        self.next_member = max(self.next_member, member + 1)

    @staticmethod
    def refusal(message: Joins | Arrives) -> str | None:
        """Return why the process may not join, or None."""
        if message.version == __version__:
            return None
        return (
            f"{message.host} has Hocket {message.version}, and the job {__version__}\n"
            "hint: install the same version"
        )

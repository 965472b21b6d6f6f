"""Numbers of the processes that join an elastic job: each is given once. Some are kept for those that its launcher starts."""

from __future__ import annotations

from collections.abc import Container

from hocket import __version__
from hocket.job.store.frames import FrameError
from hocket.members.member_messages import Joins


class Admission:
    """`next_member` is the number that the next process gets which asks for none."""

    def __init__(self, founders: int, kept: range) -> None:
        """Only the founders are there. `kept`: numbers for who asks for them."""
        self._kept = kept
        self.next_member = max(founders, kept.stop)

    def number(self, message: Joins, known: Container[int]) -> int:
        """That of a process which joins. FrameError: it asks for one that is not kept, or is `known` to be another's."""
        if message.member is None:
            return self.next_member
        if message.member not in self._kept or message.member in known:
            raise FrameError(
                f"a process on {message.host} asks to be member {message.member}, which it is not"
            )
        return message.member

    def take(self, member: int) -> None:
        """That number is given."""
        self.next_member = max(self.next_member, member + 1)

    @staticmethod
    def refusal(message: Joins) -> str | None:
        """Why it may not join, if so."""
        if message.version == __version__:
            return None
        return (
            f"{message.host} has Hocket {message.version}, and the job {__version__}\n"
            "hint: install the same version"
        )

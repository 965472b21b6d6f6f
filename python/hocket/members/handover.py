"""What ranks that were there before give to newcomers when the script goes on, as a member knows it.

It goes by way of the coordinator, to which each holder says it again when another one has come: a launcher that dies before a
newcomer is so far takes nothing along. Data of this size, and at this time, need no faster way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from hocket.errors import RendezvousError
from hocket.members.meetings import WAKE_S
from hocket.members.member_messages import FromMember, Gives, Lacks

log = logging.getLogger("hocket.membership")


class Handover:
    """One member's."""

    def __init__(
        self,
        changed: threading.Condition,
        tell: Callable[[FromMember], None],
        members: Callable[[], Collection[int]],
        why_none: Callable[[], str | None],
    ) -> None:
        """`changed`: the member's lock, notified when it has heard something; `members`: those that go on; `why_none`: why nothing
        more comes, if so."""
        self._changed, self._tell, self._members, self._why_none = changed, tell, members, why_none
        self._heard: Gives | None = None

    def hear(self, gives: Gives) -> None:
        """From the coordinator. The caller holds the lock."""
        self._heard = gives

    def give(self, generation: int, state: bytes) -> None:
        """To those that joined with that generation; all that were there before give the same."""
        with self._changed:
            self._tell(Gives(generation=generation, state=state))

    def take(self, generation: int, holders: Collection[int], timeout_s: float) -> bytes | None:
        """What one of the `holders`, members of that generation, gives; None: all of them are lost before they have.

        RendezvousError: the job ends, or nobody gives anything in time.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            self._tell(Lacks(generation=generation))
            while self._heard is None or self._heard.generation != generation:
                left = [each for each in holders if each in self._members()]
                if (why := self._why_none()) is not None:
                    raise RendezvousError(why)
                if not left:
                    log.warning(
                        "nobody is left who has the state that the script registers; it begins anew here"
                    )
                    return None
                if time.monotonic() > deadline_s:
                    named = " and ".join(f"rank {each}" for each in left)
                    raise RendezvousError(
                        f"{named} did not come to the forward after this rank joined within {timeout_s:g} s\n"
                        "hint: see what they and the launcher printed"
                    )
                self._changed.wait(WAKE_S)
            return self._heard.state

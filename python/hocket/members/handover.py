"""Handover of data from earlier ranks to newcomers when the script goes on: a member's side.

The data go through the coordinator. Each holder sends them again to a successor of the coordinator, so that nothing is lost with a
launcher that dies before a newcomer is so far. Data of this size, and at this time, need no faster way.
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
    def __init__(
        self,
        changed: threading.Condition,
        tell: Callable[[FromMember], None],
        members: Callable[[], Collection[int]],
        why_none: Callable[[], str | None],
    ) -> None:
        """Use a member's connection. `changed`: the member's lock, notified when the member has heard something; `members`: those
        that go on; `why_none`: the reason why nothing more comes, or None."""
        self._changed, self._tell, self._members, self._why_none = changed, tell, members, why_none
        self._heard: Gives | None = None

    def hear(self, gives: Gives) -> None:
        """Take data from the coordinator. The caller holds the lock."""
        self._heard = gives

    def give(self, generation: int, state: bytes) -> None:
        """Give data to newcomers of that generation; all earlier members give the same."""
        with self._changed:
            self._tell(Gives(generation=generation, state=state))

    def take(self, generation: int, holders: Collection[int], timeout_s: float) -> bytes | None:
        """Wait for the data of one of the `holders`, members of that generation. None: all are lost before they have given any.

        RendezvousError: the job ends, or no member gives anything in time.
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

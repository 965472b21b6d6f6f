"""A member's end of its connection to the coordinator. Whoever sends or reads holds the member's lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from hocket.errors import RendezvousError
from hocket.job.store import frames
from hocket.job.store.store import connect
from hocket.members.member_messages import (
    Asks,
    AtEdge,
    Finished,
    FromCoordinator,
    FromMember,
    Gives,
    Hears,
    Joins,
    Lacks,
    Unheard,
    read_from_coordinator,
)
from hocket.members.sight import Sight
from hocket.settings import Settings

SEND_TIMEOUT_S = 10.0
RETRY_S = 0.1
"""Between attempts to reach another coordinator."""
ATTEMPT_S = 1.0

Lasting = Joins | AtEdge | Gives | Lacks | Finished
"""What still holds for another coordinator."""

log = logging.getLogger("hocket.membership")


class Link:
    """To the coordinator of the job that these settings describe, or to another one that goes on from its journal."""

    def __init__(self, settings: Settings, secret: bytes) -> None:
        """Connect. RendezvousError: it cannot be reached, and no other one comes in time."""
        assert settings.coordinator is not None  # noqa: S101  # the job is elastic
        self._address, self._secret = settings.coordinator, secret
        self._silence_max_s = settings.silence_max_s(elastic=True)
        self._lasting: dict[type, Lasting] = {}
        self._connect(settings.start_timeout_s, settings.coordinator_timeout_s)

    def _connect(self, timeout_s: float, patience_s: float | None) -> None:
        _, self._channel = connect(self._address, self._secret, timeout_s, patience_s)
        self._frames = frames.Frames()
        self._sight = Sight(self._silence_max_s)
        self._back = False

    def renew(
        self, who: str, why: str, timeout_s: float, meanwhile: Callable[[], None], useless: Callable[[], bool]
    ) -> bool:
        """The connection has ended, and `why`: whether there is another one within that time, to who serves there now.

        `meanwhile` is called between attempts, and `useless` says whether another one is still of use to this member, `who`."""
        log.warning(
            "%s: the launcher is gone (%s); training goes on while no rank is lost, for %g s at most\n"
            "hint: `hocket run --resume` with the job's journal, where the launcher ran",
            who,
            why,
            timeout_s,
        )
        self._channel.close()
        deadline_s = time.monotonic() + timeout_s
        while not useless() and time.monotonic() < deadline_s:
            try:
                self._connect(ATTEMPT_S, RETRY_S)
            except RendezvousError:
                meanwhile()
                time.sleep(RETRY_S)
            else:
                log.warning("%s: another launcher has come", who)
                return True
        return False

    def tell_again(self) -> None:
        """To another coordinator, what still holds."""
        for each in tuple(self._lasting.values()):
            self.tell(each)

    def forget(self, *kinds: type[Lasting]) -> None:
        """They hold no longer."""
        for each in kinds:
            self._lasting.pop(each, None)

    def arrived(self, timeout_s: float) -> bytes:
        """What has come, after at most that time: for `read`. Needs no lock. OSError, RendezvousError: nothing comes any more."""
        return self._channel.arrived(timeout_s)

    def read(self, data: bytes) -> Iterator[FromCoordinator]:
        """What it says. FrameError: nothing that a coordinator says."""
        if data and self._sight.heard():
            self._back = True
        self._frames.feed(data)
        while (payload := self._frames.poll()) is not None:
            message = read_from_coordinator(payload)
            if isinstance(message, Asks):
                self.tell(Hears())
            elif isinstance(message, Unheard):
                self._back = True
            elif not isinstance(message, Hears):
                yield message

    def look(self) -> Literal["lost", "back"] | None:
        """The coordinator cannot be heard any more, or both can hear each other again; said once.

        OSError: there is no connection."""
        back, self._back = self._back, False
        if back:
            return "back"
        found = self._sight.look()
        if found == "ask":
            self.tell(Asks())
        return "lost" if found == "lost" else None

    def tell(self, message: FromMember) -> None:
        """OSError: there is no connection, or it does not take any more."""
        if isinstance(message, Lasting):
            self._lasting[type(message)] = message
        self._channel.send(frames.encode(msgspec.json.encode(message)), time.monotonic() + SEND_TIMEOUT_S)

    def close(self) -> None:
        """Idempotent."""
        self._channel.close()

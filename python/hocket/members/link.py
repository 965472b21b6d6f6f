"""A member's end of its connection to the coordinator. Callers that send or read hold the member's lock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from hocket.errors import RendezvousError
from hocket.job.store import frames
from hocket.job.store.sought import COORDINATOR
from hocket.job.store.store import connect
from hocket.members.arrival import Arrival
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
    Ready,
    Unheard,
    read_from_coordinator,
)
from hocket.members.sight import Sight
from hocket.settings import Settings

SEND_TIMEOUT_S = 10.0
RETRY_S = 0.1
"""Pause between attempts to reach another coordinator."""
ATTEMPT_S = 1.0

Lasting = Joins | Ready | AtEdge | Gives | Lacks | Finished
"""Messages that are repeated to another coordinator."""

log = logging.getLogger("hocket.membership")


class Link:
    """Connection to the coordinator of the job with these settings, or to a successor that resumes from its journal."""

    def __init__(self, settings: Settings, secret: bytes, arrival: Arrival | None = None) -> None:
        """Connect, or go on with the connection of an `arrival`.

        RendezvousError: the coordinator cannot be reached, and no successor comes in time.
        """
        assert settings.coordinator is not None  # noqa: S101  # the job is elastic
        self._address, self._secret = settings.coordinator, secret
        self._silence_max_s = settings.silence_max_s(elastic=True)
        self._lasting: dict[type, Lasting] = {}
        self.job = None if arrival is None else arrival.job
        """Job in which a coordinator has given this process its place."""
        if arrival is None or arrival.connection is None:
            self._connect(settings.start_timeout_s, settings.coordinator_timeout_s)
        else:
            self._channel = arrival.connection.channel
            self._begin(arrival.connection.received)

    def _connect(self, timeout_s: float, patience_s: float | None) -> None:
        _, self._channel = connect(self._address, self._secret, timeout_s, patience_s, sought=COORDINATOR)
        self._begin(frames.Frames())

    def _begin(self, received: frames.Frames) -> None:
        self._frames = received
        self._sight = Sight(self._silence_max_s)
        self._back = False

    def renew(
        self, who: str, why: str, timeout_s: float, meanwhile: Callable[[], None], useless: Callable[[], bool]
    ) -> bool:
        """Replace a connection that has ended because of `why`. Return whether a successor came to that address within `timeout_s`.

        `meanwhile` is called between attempts; `useless` returns True once a connection is of no use to this member, `who`.
        """
        log.warning(
            "%s: the launcher is gone (%s); training goes on while no rank is lost, for %g s at most\n"
            "hint: `hocket run --resume`, or `hocket coordinator` again, with the job's journal, where it ran",
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
        """Repeat all lasting messages to another coordinator."""
        for each in tuple(self._lasting.values()):
            self.tell(each)

    def forget(self, *kinds: type[Lasting]) -> None:
        """Stop repeating messages of these kinds."""
        for each in kinds:
            self._lasting.pop(each, None)

    def arrived(self, timeout_s: float) -> bytes:
        """Return data for `read` after at most that time. Needs no lock. OSError, RendezvousError: no more data will come."""
        return self._channel.arrived(timeout_s)

    def read(self, data: bytes) -> Iterator[FromCoordinator]:
        """Messages of the coordinator in the data. FrameError: the data are not from a coordinator."""
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
        """Return "lost" if the coordinator cannot be heard any more, "back" if both can hear each other again; each once.

        OSError: there is no connection.
        """
        back, self._back = self._back, False
        if back:
            return "back"
        found = self._sight.look()
        if found == "ask":
            self.tell(Asks())
        return "lost" if found == "lost" else None

    def tell(self, message: FromMember) -> None:
        """Send a message. OSError: there is no connection, or it does not take any more."""
        if isinstance(message, Lasting):
            self._lasting[type(message)] = message
        self._channel.send(frames.encode(msgspec.json.encode(message)), time.monotonic() + SEND_TIMEOUT_S)

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._channel.close()

"""A member's end of its connection to the coordinator. Whoever sends or reads holds the member's lock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import msgspec

from hocket.launch import frames
from hocket.launch.member_messages import (
    Asks,
    FromCoordinator,
    FromMember,
    Hears,
    Unheard,
    read_from_coordinator,
)
from hocket.launch.sight import Sight
from hocket.launch.store import connect

SEND_TIMEOUT_S = 10.0


class Link:
    """To the coordinator that serves at an address."""

    def __init__(self, address: str, secret: bytes, timeout_s: float, silence_max_s: float) -> None:
        """Connect within `timeout_s`. RendezvousError: it cannot be reached."""
        _, self._channel = connect(address, secret, timeout_s)
        self._frames = frames.Frames()
        self._sight = Sight(silence_max_s)
        self._back = False

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
        self._channel.send(frames.encode(msgspec.json.encode(message)), time.monotonic() + SEND_TIMEOUT_S)

    def close(self) -> None:
        """Idempotent."""
        self._channel.close()

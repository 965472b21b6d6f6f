"""A member's connection to the coordinator of its job, and to the one that goes on from its journal when it has died."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from hocket.errors import Error, RendezvousError
from hocket.launch import frames
from hocket.launch.member_messages import FromMember
from hocket.launch.store import connect

LOOK_S = 0.02
"""How often the thread looks whether anything else has happened."""
SEND_TIMEOUT_S = 10.0
RETRY_S = 0.1
"""Between attempts to reach another coordinator."""
ATTEMPT_S = 1.0

log = logging.getLogger("hocket.membership")


class Hearer(Protocol):
    """What the connection's thread calls."""

    def hear(self, payload: bytes) -> None:
        """The coordinator says something. Error: that makes no sense."""

    def look(self) -> None:
        """Time has passed."""

    def unlinked(self) -> bool:
        """The connection has ended. Whether this member waits for another coordinator."""

    def linked_again(self) -> None:
        """Another coordinator is there, and knows nothing of this member yet."""

    def end(self, why: str) -> None:
        """Nothing more comes of any coordinator."""


class CoordinatorLink:
    """Open until `close`; a thread hears what comes.

    Args:
        where: `HOST:PORT`.
        secret: the job's.
        timeout_s: how long to wait for the first coordinator.
        patience_s: and for another one when that has died; None: there will be none.

    Raises:
        RendezvousError: it cannot be reached.
    """

    def __init__(self, where: str, secret: bytes, timeout_s: float, patience_s: float | None) -> None:
        """Connect. `listen` begins to hear."""
        self._where, self._secret, self._patience_s = where, secret, patience_s
        _, self._channel = connect(where, secret, timeout_s)
        self._frames = frames.Frames()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, hearer: Hearer) -> None:
        """Hear it in a thread from now on."""
        self._thread = threading.Thread(
            target=self._listen, args=(hearer,), name="hocket-member", daemon=True
        )
        self._thread.start()

    def say(self, message: FromMember) -> None:
        """Tell the coordinator. OSError: it is gone, which the thread notices, too."""
        self._channel.send(frames.encode(msgspec.json.encode(message)), time.monotonic() + SEND_TIMEOUT_S)

    def close(self) -> None:
        """Idempotent."""
        self._closing.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        self._channel.close()

    def _listen(self, hearer: Hearer) -> None:
        while not self._closing.is_set():
            try:
                self._frames.feed(self._channel.arrived(LOOK_S))
                while (payload := self._frames.poll()) is not None:
                    hearer.hear(payload)
                hearer.look()
            except OSError as error:
                if self._patience_s is None or not hearer.unlinked():
                    hearer.end(str(error))
                    return
                if not self._reaches_another(hearer.look, str(error), self._patience_s, hearer.end):
                    return
                hearer.linked_again()
            except Error as error:
                hearer.end(str(error))
                return

    def _reaches_another(
        self, look: Callable[[], None], why: str, patience_s: float, end: Callable[[str], None]
    ) -> bool:
        log.warning(
            "the launcher is gone (%s); training goes on while no rank is lost, for %g s at most\n"
            "hint: `hocket run --resume` with the job's journal, where the launcher ran",
            why,
            patience_s,
        )
        deadline_s = time.monotonic() + patience_s
        while not self._closing.is_set():
            try:
                _, channel = connect(self._where, self._secret, ATTEMPT_S, RETRY_S)
            except RendezvousError as error:
                look()
                if time.monotonic() > deadline_s:
                    end(f"{why}; no other one came within {patience_s:g} s: {error}")
                    return False
                self._closing.wait(RETRY_S)
            else:
                self._channel.close()
                self._channel, self._frames = channel, frames.Frames()
                return True
        return False

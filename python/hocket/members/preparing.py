"""Preparations of a member, beside training, to meet newcomers, such as connections. Training goes on with what it has meanwhile.

Callers hold the member's lock, but for the thread in which things are made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from hocket.errors import Error, RendezvousError
from hocket.members.member_messages import FromMember, Prepared, Prepares, Regroup

log = logging.getLogger("hocket.membership")


class Made(Protocol):
    """Product of a preparation."""

    def close(self) -> None:
        """Give it up: nobody meets with it."""


class _Attempt:
    def __init__(self, order: Prepares) -> None:
        self.order = order
        self.made: Made | None = None
        self.dropped = False


class Preparing:
    """Preparation of one meeting at a time. `make`: what prepares it; None: this process prepares nothing."""

    def __init__(self, changed: threading.Condition, tell: Callable[[FromMember], None]) -> None:
        """Begin without an attempt. `changed`: the member's lock; `tell`: sends a message."""
        self._changed, self._tell = changed, tell
        self.make: Callable[[Prepares], Made] | None = None
        self._attempt: _Attempt | None = None

    def begin(self, order: Prepares) -> None:
        """Follow the coordinator's order, in place of an earlier one."""
        self.drop()
        if order.store is None:
            return
        if self.make is None:
            self._tell(Prepared(store=order.store, done=False))
            return
        self._attempt = _Attempt(order)
        run = self._run
        attempt, make = self._attempt, self.make
        threading.Thread(target=lambda: run(attempt, make), name="hocket-prepares", daemon=True).start()

    def take(self, order: Regroup) -> Made | None:
        """Return what was prepared for this meeting; None: its members begin with nothing.

        RendezvousError: the others go on with something that this process has no longer.
        """
        attempt = self._attempt
        if not order.prepared:
            self.drop()
            return None
        if attempt is None or attempt.made is None or attempt.order.store != order.store:
            raise RendezvousError(f"what was prepared to meet others at {order.store} is gone")
        self._attempt = None
        return attempt.made

    def drop(self) -> None:
        """Forget what was prepared; idempotent."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        attempt.dropped = True
        if attempt.made is not None:
            # Connections end in their own time, and the caller has others to hear.
            threading.Thread(target=attempt.made.close, name="hocket-prepares", daemon=True).start()

    def _run(self, attempt: _Attempt, make: Callable[[Prepares], Made]) -> None:
        made = None
        try:
            made = make(attempt.order)
        except (Error, OSError) as error:
            log.info("nothing is prepared beside training to meet others: %s", error)
        with self._changed:
            if not attempt.dropped:
                attempt.made = made
                self._tell(Prepared(store=attempt.order.store or "", done=made is not None))
                return
        if made is not None:
            made.close()

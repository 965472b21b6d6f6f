"""Stores at which the members of an elastic job meet: one at the start, and another one whenever processes have joined."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

from hocket.job.store import address as addresses
from hocket.job.store.ledger import Ledger
from hocket.job.store.server import Server


class Stores:
    """Stores on the launcher's addresses. The previous one is kept until the next one is opened: members may still leave it."""

    def __init__(self, host: str, listeners: Sequence[str], secret: bytes, ports: tuple[int, int]) -> None:
        """Open no store yet. `host`: the launcher's, as ranks reach it; `listeners`: its addresses; `ports`: as in `Server`."""
        self._host, self._listeners, self._secret, self._ports = host, tuple(listeners), secret, ports
        self.goodput: Callable[[], float | None] = lambda: None
        """Source of the job's goodput for those who look at a store."""
        self._ledger = Ledger()
        self._open: list[Server] = []

    def another(self) -> str:
        """Open a new store, and return its address."""
        while len(self._open) > 1:
            self._open.pop(0).close()
        self._ledger = Ledger()
        self._ledger.live.goodput = self.goodput
        self._open.append(Server(self._listeners, 0, self._secret, self._ledger, ports=self._ports))
        return addresses.join(self._host, self._open[-1].port)

    def refuse(self, rank: int, reason: str) -> None:
        """Tell ranks that wait for that rank at the newest store why it will not come."""
        if self._open:
            self._open[-1].call(functools.partial(self._ledger.refuse, rank, reason))

    @property
    def failure(self) -> str | None:
        """Error that has ended one of the stores, or None."""
        return next((each.failure for each in self._open if each.failure is not None), None)

    def close(self) -> None:
        """Close all stores; idempotent."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.close()
        self._open.clear()

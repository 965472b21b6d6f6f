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
        self.moved: Callable[[str], None] = lambda _: None
        """Callback with the address of each store where members have met and report from then on, in that store's thread."""
        self._ledger = Ledger()
        self._open: list[Server] = []
        self._beside: tuple[Server, Ledger] | None = None

    def another(self) -> str:
        """Open a new store, and return its address."""
        return self._add(*self._opened())

    def beside(self) -> str:
        """Open a store at which ranks prepare to meet, beside the newest; return its address."""
        self.give_up_beside()
        self._only_newest()
        self._beside = self._opened()
        return self._address(self._beside[0])

    def go_on_beside(self) -> None:
        """Let that store be the newest one: its ranks meet there."""
        assert self._beside is not None  # noqa: S101  # the caller has opened it
        server, ledger = self._beside
        self._beside = None
        self._add(server, ledger)

    def give_up_beside(self) -> None:
        """Close that store, if there is one."""
        if self._beside is not None:
            self._beside[0].close()
            self._beside = None

    def _opened(self) -> tuple[Server, Ledger]:
        ledger = Ledger()
        ledger.live.goodput = lambda: self.goodput()  # noqa: PLW0108  # it may be known later
        server = Server(self._listeners, 0, self._secret, ledger, ports=self._ports)
        ledger.live.first = functools.partial(self._report, server, ledger)
        return server, ledger

    def _report(self, server: Server, ledger: Ledger) -> None:
        """Note that members report at that store."""
        if ledger is self._ledger:
            self.moved(self._address(server))

    def _add(self, server: Server, ledger: Ledger) -> str:
        self._only_newest()
        self._ledger = ledger
        self._open.append(server)
        return self._address(server)

    def _only_newest(self) -> None:
        while len(self._open) > 1:
            self._open.pop(0).close()

    def _address(self, server: Server) -> str:
        return addresses.join(self._host, server.port)

    @property
    def newest(self) -> tuple[Ledger, Server] | None:
        """Store at which members meet or have met; None: there was none yet."""
        return (self._ledger, self._open[-1]) if self._open else None

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
        self.give_up_beside()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.close()
        self._open.clear()

"""Paths to ranks of other hosts that need more than a plain connection: the log has what each got, and why."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hocket import _native

log = logging.getLogger("hocket.job")


class Paths:
    """Paths of one engine, and what was told of them. `hosts`: by rank."""

    def __init__(self, engine: _native.Engine, hosts: Sequence[str]) -> None:
        """Remember the engine; nothing is told yet."""
        self._engine, self._hosts = engine, hosts
        self._told: dict[int, str] = {}

    def tell(self) -> None:
        """Log each path whose connections are other than plain ones, when that is new."""
        for rank, path in enumerate(self._engine.paths()):
            text = None if path is None else described(*path)
            if text is not None and self._told.get(rank) != text:
                self._told[rank] = text
                log.info("rank %d on %s: %s", rank, self._hosts[rank], text)


def described(connections: int, round_trip_us: int, bearing: str) -> str | None:
    """Return what the connections to a rank are, and why; None: a single plain one.

    >>> described(1, 50_000, "bears")
    '50 ms there and back, 1 connection with BBR, which bears losses by chance'
    >>> described(1, 100, "plain") is None
    True
    """
    if connections == 1 and bearing == "plain":
        return None
    text = f"{round_trip_us / 1000:.3g} ms there and back, {connections} connection{'s' * (connections > 1)}"
    if bearing == "bears":
        return f"{text} with BBR, which bears losses by chance"
    if bearing == "refused":
        return f"{text}; losses by chance slow them, since this system does not allow BBR (docs/how-fast.md)"
    return text

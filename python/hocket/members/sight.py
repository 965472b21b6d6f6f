"""Liveness of the other end of a connection on which nothing may pass for hours while all is well.

The other end is asked for a sign after a second of silence. Members of an elastic job and their coordinator check each other like
this: a host that is cut off or a process that is stopped closes no connection.
"""

from __future__ import annotations

import time
from typing import Literal

from hocket import _native


class Sight:
    """Liveness of one end, which has been heard just now."""

    def __init__(self, silence_max_s: float) -> None:
        """Count the end as lost after that silence, as long as this process was awake itself."""
        self._liveness = _native.Liveness(silence_max_s=silence_max_s, now_s=time.monotonic())
        self._lost = False

    def heard(self) -> bool:
        """Record that something has come. Return whether the end was lost before."""
        self._liveness.heard(time.monotonic())
        lost, self._lost = self._lost, False
        return lost

    def look(self, tcp_info: bytes | None = None) -> Literal["ask", "lost"] | None:
        """Return the action that is due: ask the end for a sign, or treat it as lost; each once in a silence.

        `tcp_info`, in each call while others say that they cannot reach the end: what the system tells of the connection. Its host
        acknowledges what it is sent within one of TCP's time-outs, whatever its processes do; else it is lost, too.
        """
        if self._lost:
            return None
        found = self._liveness.poll(time.monotonic(), tcp_info)
        self._lost = found == "lost"
        return found

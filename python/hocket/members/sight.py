"""Whether the other end of a connection can be heard, where nothing may pass for hours while all is well.

It is asked after a second of silence. Members of an elastic job and their coordinator look at each other so: a host that is cut off
and a process that is stopped close no connection.
"""

from __future__ import annotations

import time
from typing import Literal

from hocket import _native


class Sight:
    """Of one end that has been heard just now."""

    def __init__(self, silence_max_s: float) -> None:
        """It is lost after that silence, as long as this process was awake itself."""
        self._liveness = _native.Liveness(silence_max_s=silence_max_s, now_s=time.monotonic())
        self._lost = False

    def heard(self) -> bool:
        """Something has come. Whether it was lost before that."""
        self._liveness.heard(time.monotonic())
        lost, self._lost = self._lost, False
        return lost

    def look(self) -> Literal["ask", "lost"] | None:
        """What there is to do now: ask it for a sign, or take note that it is lost, each once in a silence."""
        if self._lost:
            return None
        found = self._liveness.poll(time.monotonic())
        self._lost = found == "lost"
        return found

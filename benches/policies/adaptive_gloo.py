"""Policies of `python -m benches policies`: adaptive fusion with expensive collectives, over Gloo instead of the native wire."""

from __future__ import annotations

from typing import ClassVar

from hocket.policies import AdaptiveFusion
from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy


class OverGloo(Policy):
    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Call the library once per bucket."""
        cx.all_reduce(buffer, op="mean", library="gloo")


class AdaptiveOverGloo(AdaptiveFusion, OverGloo):
    """Adaptive fusion over Gloo, which has its own chunks."""

    ladders: ClassVar[dict[str, list[int]]] = {"fusion_bytes": AdaptiveFusion.ladders["fusion_bytes"]}

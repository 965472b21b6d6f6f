"""Adaptive fusion: the bucket size climbs the hill of step time while training runs (SDCC, case 4).

Small buckets start early, large ones cost less each; where the best lies depends on the network. The leader doubles the
threshold as long as the negotiated step time falls, then takes the best.
"""

from typing import ClassVar

from hocket.tracing.control import Control, Statistics
from hocket.tracing.policy import Policy, Value


class AdaptiveFusion(Policy):
    """Plain data parallelism that looks for its own fusion threshold."""

    parameters: ClassVar[dict[str, Value]] = {
        "fusion_bytes": 256 << 10,
        "steps": 12,
        "largest": 128 << 20,
        "climbing": True,
    }
    timer_interval_s = 0.2

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.step_s: dict[int, float] = {}
        self.worse = 0

    def on_timer(self, cx: Control, stats: Statistics) -> None:
        """Once enough steps were made since the last change: note, and go on or settle."""
        fused, steps = int(cx.agreed("fusion_bytes")), int(cx.agreed("steps"))
        if not cx.agreed("climbing") or not cx.negotiate(stats.count("step_time") >= steps + 2, how="min"):
            return
        self.step_s[fused] = cx.negotiate(stats.median("step_time", steps), how="max")
        best = min(self.step_s, key=self.step_s.__getitem__)
        self.worse = 0 if best == fused else self.worse + 1
        if cx.rank == 0 and (self.worse == 3 or 2 * fused > int(cx.agreed("largest"))):
            cx.propose(fusion_bytes=best, first_fusion_bytes=best, climbing=False)
        elif cx.rank == 0:
            cx.propose(fusion_bytes=2 * fused, first_fusion_bytes=2 * fused)

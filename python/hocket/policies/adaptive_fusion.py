"""Adaptive fusion: sizes of buckets and chunks climb the hill of step time for as long as training runs (SDCC, case 4).

Small buckets start early, large ones cost less each; the best size depends on the network, and moves with it. All ranks climb by
the same negotiated step time, so they agree without another message.
"""

from typing import ClassVar

from hocket.policies.hill_climb import HillClimb
from hocket.tracing.control import Control, Statistics
from hocket.tracing.policy import Policy, Value

LADDERS = {
    "fusion_bytes": [1 << at for at in range(16, 28)],
    "chunk_bytes": [1 << at for at in range(16, 23)],
}


class AdaptiveFusion(Policy):
    """Plain data parallelism that looks for its own fusion threshold and chunk size."""

    parameters: ClassVar[dict[str, Value]] = {
        "fusion_bytes": 256 << 10,
        "chunk_bytes": 512 << 10,
        "steps": 12,
    }
    timer_interval_s = 0.2

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.climb: HillClimb | None = None

    def on_timer(self, cx: Control, stats: Statistics) -> None:
        """Once enough steps were made in the setting that is to be measured: note what they took, and go on to the next."""
        if self.climb is None:
            self.climb = HillClimb(LADDERS, {knob: int(cx.agreed(knob)) for knob in LADDERS})
        began = all(cx.agreed(knob) == value for knob, value in self.climb.setting.items())
        steps = int(cx.agreed("steps"))
        if began and cx.negotiate(stats.count("step_time") >= steps + 2, how="min"):
            self.climb.note(cx.negotiate(stats.median("step_time", steps), how="max"))
        setting = self.climb.setting
        cx.propose(**setting, first_fusion_bytes=setting["fusion_bytes"])

"""Adaptive fusion: hill climbing on bucket and chunk sizes by step time, throughout training (SDCC, case 4).

Small buckets start early, large ones have less overhead; the best size depends on the network and changes with the network. All
ranks climb by the same negotiated step time, so they agree without another message.
"""

from typing import ClassVar

from hocket.policies.hill_climb import HillClimb
from hocket.policy.control import Control, Statistics
from hocket.policy.policy import Policy, Value


class AdaptiveFusion(Policy):
    """Plain data parallelism that searches for its own fusion threshold and chunk size."""

    parameters: ClassVar[dict[str, Value]] = {
        "fusion_bytes": 256 << 10,
        "chunk_bytes": 512 << 10,
        "steps": 12,
    }
    ladders: ClassVar[dict[str, list[int]]] = {
        "fusion_bytes": [1 << at for at in range(16, 28)],
        "chunk_bytes": [1 << at for at in range(16, 23)],
    }
    timer_interval_s = 0.2

    def __init__(self) -> None:
        """Begin without measurements."""
        self.climb: HillClimb | None = None
        self.noted = 0

    def on_timer(self, cx: Control, stats: Statistics) -> None:
        """Note the cost of the setting under test once enough steps have run with it, and move on."""
        if self.climb is None:
            self.climb = HillClimb(self.ladders, {knob: int(cx.agreed(knob)) for knob in self.ladders})
        steps, made, before = int(cx.agreed("steps")), stats.count("step_time"), self.climb.setting
        began = all(cx.agreed(knob) == value for knob, value in before.items())
        if made < self.noted:
            self.noted = 0  # another epoch than this policy's own has begun
        # The first steps of an epoch are slower; count only later ones.
        if began and cx.negotiate(made >= steps + (self.noted or 2), how="min"):
            self.climb.note(cx.negotiate(stats.median("step_time", steps), how="max"))
            self.noted = made if self.climb.setting == before else 0
        setting = self.climb.setting
        cx.propose(**setting, first_fusion_bytes=setting["fusion_bytes"])

"""Row `balanced`: batches so large that backward takes as long as communication, on two hosts at 1 Gbit/s.

With enough processors, a step should then take only as long as the longer of the two. If both ranks share two processors, a step
takes at least the processor time of both parts.
"""

from __future__ import annotations

from statistics import median

from benches.emulated import hosts
from benches.frameworks.measured import GIGABIT, measured, steps, times_faster
from benches.frameworks.rank import BALANCED
from benches.row import Row

TITLES = {
    "layers": "ours, a bucket for each layer",
    "psum": "psum on Gloo",
    "computation": "computation alone",
    "communication": "our communication alone",
}


def rows() -> list[Row]:
    """Rows against JAX's own collectives, and against the longer part."""
    result = measured("jax", hosts([GIGABIT] * 2), tuple(TITLES), "--samples", BALANCED)
    found, worked = result["steps_s"], result["processor_s"]
    longer_s = [
        max(median(computed), median(sent))
        for computed, sent in zip(found["computation"], found["communication"], strict=True)
    ]
    over = [median(ours) / longer for ours, longer in zip(found["layers"], longer_s, strict=True)]
    both_s = [
        median(computed) + median(sent)
        for computed, sent in zip(worked["computation"], worked["communication"], strict=True)
    ]
    return [
        Row.over(
            over,
            name="balanced",
            what="step of ours, in the longer of computation and communication",
            target=1.15,
            unit="times",
        ),
        Row.over(
            [both / longer for both, longer in zip(both_s, longer_s, strict=True)],
            name="balanced",
            what="a rank's processor time for computation and communication, in the same",
            unit="times",
        ),
        Row.over(
            times_faster(found, "layers", "psum"),
            name="balanced",
            what="step of psum on Gloo, in steps of ours",
            target=1.2,
            least=True,
            unit="times",
        ),
        *(steps(found, "balanced", name, title) for name, title in TITLES.items()),
    ]

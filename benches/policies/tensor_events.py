"""Work on each gradient in `on_tensor_ready`, which runs as soon as that gradient is there, while backward goes on."""

from __future__ import annotations

import numpy as np

from hocket.artefacts.trace import Kind, Trace
from hocket.policy.context import Context
from hocket.policy.handles import Gradient
from hocket.policy.policy import Policy


class RoundEach(Policy):
    """Policy that rounds every gradient to f16 and back before fusion, twice: two passes over it."""

    def on_tensor_ready(self, cx: Context, grad: Gradient) -> None:
        cx.cast(cx.cast(grad, "f16"), "f32", into=grad)
        cx.enqueue(grad)


def hidden_share(trace: Trace) -> float:
    """Share of the seconds of casts that lie within a backward, over all ranks."""
    inside_ns = all_ns = 0
    for rank in range(trace.run.world):
        records = trace.rank_records(rank).records
        casts = records[records["kind"] == Kind.CAST]
        for backward in records[records["kind"] == Kind.BACKWARD]:
            starts = np.maximum(casts["start_ns"], backward["start_ns"])
            ends = np.minimum(casts["end_ns"], backward["end_ns"])
            inside_ns += int(np.maximum(ends.astype(np.int64) - starts.astype(np.int64), 0).sum())
        all_ns += int((casts["end_ns"] - casts["start_ns"]).sum())
    return inside_ns / all_ns if all_ns else 0.0

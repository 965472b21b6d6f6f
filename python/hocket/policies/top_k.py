"""Top-k with error feedback: each rank sends only its largest gradients and keeps the rest for the next step.

The number sent varies by rank and step, up to a share of the bucket: gradients that are zero are not sent (Stich,
Cordonnier and Jaggi 2018; Lin et al. 2018).
"""

from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class TopK(Policy):
    """The mean of every rank's largest elements; f32."""

    contract = "same"
    parameters: ClassVar[dict[str, Value]] = {"share": 0.01}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Select, gather the selections, and sum them."""
        left = cx.add(cx.state("left", like=buffer), buffer, into=cx.state("left", like=buffer))
        k = max(1, int(buffer.elements * float(cx.agreed("share"))))
        values, indices, count = cx.alloc(k), cx.alloc(k, "i32"), cx.alloc(1, "i64")
        cx.apply("top_k.f32", [left], [values, indices, count])
        cx.apply("clear_at.f32", [indices, count], [left])
        cx.fill(buffer, 0)
        for (theirs, where), many in cx.all_gather_variable([values, indices], count):
            cx.apply("scatter_add.f32", [theirs, where, many], [buffer])
        cx.scale(buffer, 1 / cx.world)

"""Priority by when the next forward needs a parameter, tensors in parts that overtake one another (SDCC, case 2).

What backward makes last is needed first. With gates open one by one, forward starts while the rest is still on its way; chunks
are the parts: an urgent bucket overtakes a large one between two of them.
"""

from hocket.policy.context import Context
from hocket.policy.handles import Gradient
from hocket.policy.policy import Policy


class Priority(Policy):
    """Plain data parallelism whose next forward waits for each layer alone, urgent layers first."""

    gates = True
    parameters = {"fusion_bytes": 1 << 20, "chunk_bytes": 128 << 10}  # noqa: RUF012  # as users write it

    def on_tensor_ready(self, cx: Context, grad: Gradient) -> None:
        """Urgent is what forward needs first."""
        cx.enqueue(grad, priority=cx.forward_order(grad))

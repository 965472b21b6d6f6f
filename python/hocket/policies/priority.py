"""Priority by the time at which the next forward needs a parameter; chunks of tensors overtake one another (SDCC, case 2).

Backward produces last the gradients that forward needs first. As gates open one by one, forward starts while other gradients are
still travelling. An urgent bucket overtakes a large one between two chunks.
"""

from hocket.policy.context import Context
from hocket.policy.handles import Gradient
from hocket.policy.policy import Policy


class Priority(Policy):
    """Plain data parallelism in which the next forward waits for each layer separately, urgent layers first."""

    gates = True
    parameters = {"fusion_bytes": 1 << 20, "chunk_bytes": 128 << 10}  # noqa: RUF012  # as users write it

    def on_tensor_ready(self, cx: Context, grad: Gradient) -> None:
        """Give gradients that forward needs first the highest priority."""
        cx.enqueue(grad, priority=cx.forward_order(grad))

"""Policies of `python -m benches policies`: work on each gradient in `on_tensor_ready`, which runs when its bucket is complete.

The paper has an event per gradient. Waiting for the bucket cannot cost more than the work itself; without fusion, the same policy
has one program per gradient, like the paper's event.
"""

from __future__ import annotations

from hocket.policy.context import Context
from hocket.policy.handles import Gradient
from hocket.policy.policy import Policy


class RoundEach(Policy):
    """Policy that rounds every gradient to f16 and back before fusion, twice: two passes over it."""

    def on_tensor_ready(self, cx: Context, grad: Gradient) -> None:
        cx.cast(cx.cast(grad, "f16"), "f32", into=grad)
        cx.enqueue(grad)

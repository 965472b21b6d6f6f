"""Local SGD with an outer optimizer (DiLoCo, Douillard et al. 2023).

Ranks train alone for H steps; the mean of their progress is then the gradient of an outer Nesterov step.

Buckets hold parameters. `anchor` has the parameters of all ranks after the last exchange.
"""

from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class LocalSGD(Policy):
    """Exchange of parameters every `every` steps."""

    contract = "same"
    exchanges = "parameters"
    every = 16
    parameters: ClassVar[dict[str, Value]] = {"outer_rate": 0.7, "outer_momentum": 0.9}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """delta = anchor - parameters, mean; momentum; parameters = anchor - rate · (delta + momentum · m)."""
        rate, momentum = float(cx.agreed("outer_rate")), float(cx.agreed("outer_momentum"))
        anchor = cx.state("anchor", starts_as=buffer, shared=True)
        moved = cx.state("moved", like=buffer, shared=True)
        delta = cx.all_reduce(cx.sub(anchor, buffer), op="mean")
        cx.add(cx.scale(moved, momentum), delta, into=moved)
        step = cx.add(cx.scale(cx.copy(moved), momentum), delta)
        cx.sub(anchor, cx.scale(step, rate), into=buffer)
        cx.copy(buffer, into=anchor)

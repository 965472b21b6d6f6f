"""`Policy`: the class that users extend to decide how gradients travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from hocket.artefacts.chunks import BUCKET_BYTES, FIRST_BUCKET_BYTES, POLICY_CHUNK_BYTES

if TYPE_CHECKING:
    from hocket.policy.context import Context
    from hocket.policy.control import Control, Statistics
    from hocket.policy.handles import Buffer, Gradient

Value = int | float | str | bool
"""Types of values that ranks can agree on."""

DEFAULTS: dict[str, Value] = {
    "fusion_bytes": BUCKET_BYTES,
    "first_fusion_bytes": FIRST_BUCKET_BYTES,
    "chunk_bytes": POLICY_CHUNK_BYTES,
}
"""Agreed values of every policy. A bucket closes when it has reached `fusion_bytes` (0: one gradient per bucket), the
first one at `first_fusion_bytes`; ops are split into chunks of `chunk_bytes`."""


class Policy:
    """Decides how gradients travel. With the default handlers, an empty policy is plain data parallelism.

    The path of a gradient: ready → readiness check → `on_tensor_ready` → priority queue → fusion into its bucket →
    `on_buffer_ready` → defusion → the parameter's gate opens.

    `on_tensor_ready` and `on_buffer_ready` are traced: they run once per tensor signature and epoch, for every rank in
    turn, and their ops on buffers are recorded into a program. Python control flow over ranks, topology, agreed values
    and statistics is resolved then. No handler runs in a training step.

    >>> class Plain(Policy):
    ...     def on_buffer_ready(self, cx, buffer):
    ...         cx.all_reduce(buffer, op="mean", algorithm="ring")
    """

    contract: ClassVar[Literal["mean", "same", "none"]] = "mean"
    """The contract that the verifier proves of every bucket. `mean`: each rank ends with the mean over all ranks, every
    contribution exactly once, with the same bits everywhere. `same`: all ranks end with the same bits, which depend on
    every rank (lossy codecs). `none`: nothing."""

    parameters: ClassVar[dict[str, Value]] = {}
    """Initial values on which all ranks agree; `cx.agreed(name)` reads them, `cx.propose(name=…)` changes them."""

    gates: ClassVar[bool] = False
    """True if backward ends without waiting. Each layer's next forward then waits for its own parameters, and the optimizer steps
    per bucket. Code that reads gradients after backward, such as clipping, needs `False` or `hocket.torch.clip_grad_norm_`."""

    timer_interval_s: ClassVar[float] = 1.0
    """Seconds between calls of `on_timer`; the variable HOCKET_TIMER_INTERVAL_S overrides it."""

    def on_tensor_ready(self, cx: Context, grad: Gradient) -> None:
        """Enqueue a gradient. Traced once per gradient; without `cx.enqueue`, the gradient stays on its rank."""
        cx.enqueue(grad)

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Reduce a fused bucket. Traced once per bucket."""
        cx.all_reduce(buffer, op="mean")

    def on_timer(self, cx: Control, stats: Statistics) -> None:
        """Inspect statistics, negotiate and propose. Runs in Python beside training every `timer_interval_s`."""

    def on_worker_added(self, cx: Control, worker: int) -> None:
        """React to a rank that joins. Runs in Python once for each rank at the start of the job. In an elastic job it also runs for
        ranks that join later, by their ranks among all."""

    def on_worker_removed(self, cx: Control, worker: int) -> None:
        """React to the loss of a rank. Runs in Python before the error that reports the loss is raised. In an elastic job, the
        others then trace this policy anew and continue; `worker` and `cx` still refer to the world with that rank."""

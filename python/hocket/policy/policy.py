"""`Policy`: what a user subclasses to say how gradients travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from hocket.artefacts.plan import BUCKET_BYTES, FIRST_BUCKET_BYTES, POLICY_CHUNK_BYTES

if TYPE_CHECKING:
    from hocket.policy.context import Context
    from hocket.policy.control import Control, Statistics
    from hocket.policy.handles import Buffer, Gradient

Value = int | float | str | bool
"""Types of values on which ranks can agree."""

DEFAULTS: dict[str, Value] = {
    "fusion_bytes": BUCKET_BYTES,
    "first_fusion_bytes": FIRST_BUCKET_BYTES,
    "chunk_bytes": POLICY_CHUNK_BYTES,
}
"""Agreed values that every policy has: a bucket closes when it has reached `fusion_bytes` (0: one gradient per bucket), the first
one at `first_fusion_bytes`; ops are split into chunks of `chunk_bytes`."""


class Policy:
    """How gradients travel. The handlers' defaults make an empty policy plain data parallelism.

    The path of a gradient: ready → readiness check → `on_tensor_ready` → priority queue → fusion into its bucket →
    `on_buffer_ready` → defusion → the parameter's gate opens.

    `on_tensor_ready` and `on_buffer_ready` are traced: they run once per tensor signature and epoch, for every rank in turn, and
    what they do with buffers is recorded into a program. Python control flow over ranks, topology, agreed values and statistics
    is resolved then. In a training step no handler runs.

    >>> class Plain(Policy):
    ...     def on_buffer_ready(self, cx, buffer):
    ...         cx.all_reduce(buffer, op="mean", algorithm="ring")
    """

    contract: ClassVar[Literal["mean", "same", "none"]] = "mean"
    """What is proven of every bucket. `mean`: each rank ends with the mean over all, every contribution exactly once, the same bits
    everywhere. `same`: all end with the same bits, which depend on every rank (lossy codecs). `none`: nothing."""

    parameters: ClassVar[dict[str, Value]] = {}
    """Values that all ranks agree on, with their initial ones; `cx.agreed(name)` reads, `cx.propose(name=…)` changes them."""

    gates: ClassVar[bool] = False
    """Whether backward ends without waiting. Each layer's next forward then waits for its own parameters, and the optimizer steps
    per bucket. Code that reads gradients after backward, such as clipping, needs `False` or `hocket.torch.clip_grad_norm_`."""

    exchanges: ClassVar[Literal["gradients", "parameters"]] = "gradients"
    """What buckets hold. Parameters are exchanged after the optimizer's step, every `every` steps (local SGD)."""

    every: ClassVar[int] = 1
    """Exchange parameters once in so many steps."""

    timer_interval_s: ClassVar[float] = 1.0
    """Seconds between calls of `on_timer`; the variable HOCKET_TIMER_INTERVAL_S overrides it."""

    def on_tensor_ready(self, cx: Context, grad: Gradient) -> None:
        """Traced, once per gradient. It must end with `cx.enqueue`, or the gradient stays on its rank."""
        cx.enqueue(grad)

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Traced, once per fused bucket."""
        cx.all_reduce(buffer, op="mean")

    def on_timer(self, cx: Control, stats: Statistics) -> None:
        """Runs in Python, beside training, every `timer_interval_s`, to look at statistics, negotiate and propose."""

    def on_worker_added(self, cx: Control, worker: int) -> None:
        """Runs in Python when a rank joins: once for each rank at the start of the job."""

    def on_worker_removed(self, cx: Control, worker: int) -> None:
        """Runs in Python when a rank is gone, before the error that reports it is raised."""

"""A model in training: what happens between a gradient's readiness and the end of backward.

In a step Python runs the native readiness hook per gradient, one callback when the first gradient of a backward comes and
one wait at its end; launching, moving and reducing buckets is native and needs no GIL.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch
from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.launch.rendezvous import Job
from hocket.planners.compile import programs
from hocket.torch import buckets as bucket_memory
from hocket.torch.spans import Spans


class Session:
    """The engine, buckets and hooks of one distributed model."""

    def __init__(
        self,
        parameters: dict[str, torch.nn.Parameter],
        plan: Plan,
        job: Job,
        engine: _native.Engine,
        spans: Spans | None,
    ) -> None:
        """Make the buckets, load the plan's programs, hook every gradient."""
        self.job = job
        self.plan = plan
        self.spans = spans
        self.engine = engine
        self.buckets = bucket_memory.make(plan, parameters, engine)
        self.programs = [
            engine.load(program, {0: (bucket.memory, 0)}, priority=planned.priority, label=f"bucket {index}")
            for index, (program, bucket, planned) in enumerate(
                zip(programs(plan), self.buckets, plan.buckets, strict=True)
            )
        ]
        self.readiness = _native.Readiness(
            engine, self.programs, [len(bucket.views) for bucket in self.buckets], self._on_first, self._adopt
        )
        self.iteration = 0
        self._warned = False
        for index, bucket in enumerate(self.buckets):
            bucket.zero()
            for position, (parameter, view) in enumerate(zip(bucket.parameters, bucket.views, strict=True)):
                hook = self.readiness.hook(index, position, view)
                parameter.register_post_accumulate_grad_hook(hook)

    def zero_grad(self) -> None:
        """All gradients zero, in their buckets."""
        for bucket in self.buckets:
            bucket.zero()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate without communication."""
        before = self.readiness.enabled
        self.readiness.enabled = False
        try:
            yield
        finally:
            self.readiness.enabled = before

    def _on_first(self) -> None:
        # The same call as DistributedDataParallel's own; there is no public one.
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def _adopt(self, bucket: int, index: int, parameter: torch.nn.Parameter) -> None:
        """A gradient that lies elsewhere (after `grad = None`) moves into its bucket."""
        view = self.buckets[bucket].views[index]
        gradient = parameter.grad
        if gradient is None:
            view.zero_()
        else:
            self._check_type(bucket, index, gradient)
            view.copy_(gradient)
        parameter.grad = view

    def _check_type(self, bucket: int, index: int, gradient: torch.Tensor) -> None:
        view = self.buckets[bucket].views[index]
        if gradient.dtype != view.dtype or gradient.shape != view.shape or gradient.device != view.device:
            raise UsageError(
                f"the gradient of `{self.buckets[bucket].names[index]}` is {list(gradient.shape)} of {gradient.dtype} on "
                f"{gradient.device}, it was {list(view.shape)} of {view.dtype} on {view.device} when the model was "
                "distributed\nhint: change the model before `distribute`"
            )

    def _on_end(self) -> None:
        """End of backward: what has not come is launched as it is, then all buckets are awaited."""
        began_ns = _native.now_ns()
        missing = self.readiness.missing()
        for bucket, index in missing:
            parameter = self.buckets[bucket].parameters[index]
            if parameter.grad is not self.buckets[bucket].views[index]:
                self._adopt(bucket, index, parameter)
            # Accumulated without communication before, and not made by this backward: it still counts as made.
            if not bool(self.buckets[bucket].views[index].any()):
                self.buckets[bucket].flags[index] = 0
        self.readiness.finish()
        self.readiness.wait(self.job.settings.timeout_s)
        for bucket, index in missing:
            if float(self.buckets[bucket].flags[index]) == 0:
                self.buckets[bucket].parameters[index].grad = None
        for each in self.buckets:
            each.flags.fill_(1)
        if not self._warned:
            self._warn_of_non_finite()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        self.iteration += 1

    def _warn_of_non_finite(self) -> None:
        for program, iteration, element in self.engine.non_finite():
            if program in self.programs:
                name = self.buckets[self.programs.index(program)].name_of(element)
                warnings.warn(
                    f"rank {self.job.rank} on {self.job.host}: the gradient of `{name}` has NaN or infinity in iteration "
                    f"{iteration}; said once. With a GradScaler this is normal while it finds its scale.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._warned = True
                return

"""A model in training: what happens between a gradient's readiness and the end of backward, or the gate of its parameter.

In a step Python runs the native readiness hook per gradient, one callback when the first gradient of a backward comes and
one wait at its end (or one per gate); launching, moving and reducing buckets is native and needs no GIL.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings

import torch
from hocket import _native
from hocket.errors import PeerError, UsageError
from hocket.launch.rendezvous import Job
from hocket.libraries.service import Service
from hocket.torch import buckets as bucket_memory
from hocket.torch import places
from hocket.torch.buckets import Bucket
from hocket.torch.course import Course
from hocket.torch.gates import Gates
from hocket.torch.spans import Spans
from hocket.torch.votes import Votes


class Session(places.InPlace):
    """The engine, buckets and hooks of one distributed model."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        parameters: dict[str, torch.nn.Parameter],
        course: Course,
        job: Job,
        engine: _native.Engine,
        libraries: Service,
        spans: Spans | None,
    ) -> None:
        """Make the buckets, load the programs, hook every gradient."""
        self.job = job
        self.spans = spans
        self.engine = engine
        self.course = course
        self._libraries = libraries
        self.iteration = 0
        self._parameters = parameters
        self._owner = os.getpid()
        self._votes = Votes(engine, job.hosts, list(parameters))
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._warned = False
        self._under_way = False
        self._counted = False
        self._begins = False
        self._unmade: set[str] = set()
        self._waited: set[int] = set()
        self._ended_s: float | None = None
        self._sent = engine.bytes_sent()
        self.buckets: list[Bucket] = []
        self._specs: list[bucket_memory.Spec] = []
        self._load()
        self._keep_gradients_in_place(optimizer)
        self.gates: Gates | None = None
        if course.policy is not None and course.policy.gates:
            self.gates = Gates(model, optimizer, self._gated(), self._wait_bucket, self._zero_bucket)

    @property
    def programs(self) -> list[int]:
        """By bucket: its program's number."""
        return [bucket.program for bucket in self.buckets]

    def close(self) -> None:
        """Apply what is outstanding, and stop what runs beside training."""
        if self.gates is not None and self.gates.closed:
            # Others need our part of the last step; where the job has failed, that was said already.
            with contextlib.suppress(PeerError):
                self.gates.open_all()
        self.course.stop()

    def _load(self) -> None:
        """Buckets, programs and hooks of the current epoch; gradients move from the buckets before."""
        before = {
            name: view
            for bucket in self.buckets
            for name, view in zip(bucket.names, bucket.views, strict=True)
        }
        loaded = self.programs
        for hook in self._hooks:
            hook.remove()
        specs = self.course.specs()
        number = self.course.epochs.current.number
        old = bucket_memory.Loaded(self._specs, self.buckets)
        self.buckets = bucket_memory.make(specs, self._parameters, self.engine, number)
        self._specs = specs
        new = bucket_memory.Loaded(specs, self.buckets)
        bucket_memory.carry_states(old, new, self.engine, self.job.rank)
        for spec, program in zip(specs, self.programs, strict=True):
            self._libraries.learn(program, spec.program)
        self.readiness = _native.Readiness(
            self.engine,
            self.programs,
            [len(bucket.views) for bucket in self.buckets],
            self._on_first,
            self._adopt,
            self._twice,
        )
        for index, bucket in enumerate(self.buckets):
            for position, (name, parameter, view) in enumerate(
                zip(bucket.names, bucket.parameters, bucket.views, strict=True)
            ):
                if name in before:
                    view.copy_(before[name])
                    parameter.grad = None if parameter.grad is None else view
                ready = self.readiness.hook(index, position, view)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(ready))
            if not before:
                bucket.zero()
        self._owned = {id(each) for bucket in self.buckets for each in bucket.parameters}
        self._addresses = places.addresses(self.buckets)
        for program in loaded:
            self._libraries.forget(program)
            self.engine.unload(program)

    def _keep_gradients_in_place(self, optimizer: torch.optim.Optimizer) -> None:
        """`zero_grad` zeroes whole buckets; gradients of parameters that are not communicated go as before."""
        before = optimizer.zero_grad

        def zero_grad(set_to_none: bool = True) -> None:
            others = (each for group in optimizer.param_groups for each in group["params"])
            if any(id(each) not in self._owned for each in others):
                before(set_to_none)
            self.zero_grad()

        optimizer.zero_grad = zero_grad  # type: ignore[method-assign]

    def _gated(self) -> list[tuple[torch.nn.Parameter, ...]]:
        return [bucket.parameters for bucket in self.buckets]

    def _on_first(self) -> None:
        if os.getpid() != self._owner:
            raise UsageError(
                "backward in a forked child of the process that distributed the model\n"
                "hint: train in the process that called `distribute`"
            )
        self._under_way = True
        self._libraries.expect(self.programs)
        if self.gates is not None:
            self.gates.backward_began()
        # The same call as DistributedDataParallel's own; there is no public one.
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def _on_end(self) -> None:
        """End of backward: what has not come is launched as it is; then all buckets are awaited, or gates are closed."""
        began_ns = _native.now_ns()
        places.check(self.buckets, self._addresses)
        missing = self.readiness.missing()
        unmade = []
        for bucket, index in missing:
            parameter = self.buckets[bucket].parameters[index]
            if parameter.grad is not self.buckets[bucket].views[index]:
                self._adopt(bucket, index, parameter)
            # Accumulated without communication before, and not made by this backward: it still counts as made.
            if not bool(self.buckets[bucket].views[index].any()):
                unmade.append(self.buckets[bucket].names[index])
        self._votes.cast(self.course.epochs.vote(), unmade)
        self._unmade, self._counted, self._waited = set(unmade), False, set()
        self.readiness.finish()
        if self.gates is None or not self.course.epochs.settled:
            self._wait_all()
            ended_ns = _native.now_ns()
            self.course.record("wait_time", (ended_ns - began_ns) * 1e-9)
            if self._begins:
                self._load()
                if self.gates is not None:
                    self.gates.rebucket(self._gated())
        if self.gates is not None:
            self.gates.backward_ended()
        self._under_way = False
        self._note()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        self.iteration += 1

    def _wait_all(self) -> None:
        for bucket in range(len(self.buckets)):
            self._wait_bucket(bucket)

    def _wait_bucket(self, bucket: int) -> None:
        """Until a bucket is reduced; gradients that no rank made become None."""
        if bucket in self._waited:
            return
        timeout_s = self.job.settings.timeout_s
        try:
            self.readiness.wait_bucket(bucket, timeout_s)
            if not self._counted:
                self._begins = self.course.decide(self._votes.count(timeout_s))
                self._counted = True
        except PeerError as error:
            self._tell_of_loss(str(error))
            raise
        self._waited.add(bucket)
        own = self.buckets[bucket]
        for name, parameter in zip(own.names, own.parameters, strict=True):
            if name in self._unmade and not self._votes.made(name):
                parameter.grad = None
        if len(self._waited) == len(self.buckets):
            self.readiness.reset()
            if not self._warned:
                self._warn_of_non_finite()

    def _zero_bucket(self, bucket: int) -> None:
        self.buckets[bucket].zero()

    def _note(self) -> None:
        """Statistics of the step that ends."""
        if self.course.timer is None:
            return
        now_s, before_s = time.perf_counter(), self._ended_s
        self._ended_s = now_s
        sent = self.engine.bytes_sent()
        if before_s is not None:
            step_s = now_s - before_s
            self.course.record("step_time", step_s)
            self.course.record("bytes", sum(sent) - sum(self._sent))
            for rank, (now, before) in enumerate(zip(sent, self._sent, strict=True)):
                if now > before:
                    self.course.record(f"throughput.{rank}", 8 * (now - before) / step_s)
        self._sent = sent
        if self.gates is None and self.course.timer.wants_norm():
            squares = sum(float(torch.linalg.vector_norm(bucket.elements)) ** 2 for bucket in self.buckets)
            self.course.record("gradient_norm", math.sqrt(squares))

    def _tell_of_loss(self, message: str) -> None:
        timer = self.course.timer
        lost = next((rank for rank in range(self.job.world) if f"rank {rank} " in message), None)
        if timer is not None and lost is not None and lost != self.job.rank:
            timer.worker_removed(lost)

    def _warn_of_non_finite(self) -> None:
        programs = self.programs
        for program, iteration, element in self.engine.non_finite():
            if program in programs:
                name = self.buckets[programs.index(program)].name_of(element)
                warnings.warn(
                    f"rank {self.job.rank} on {self.job.host}: the gradient of `{name}` has NaN or infinity in iteration "
                    f"{iteration}; said once. With a GradScaler this is normal while it finds its scale.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._warned = True
                return

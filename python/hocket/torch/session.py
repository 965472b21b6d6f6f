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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from hocket import _native
from hocket.errors import PeerError, UsageError
from hocket.launch.rendezvous import Job
from hocket.libraries.service import Service
from hocket.torch import buckets as bucket_memory
from hocket.torch import places
from hocket.torch.buckets import Bucket
from hocket.torch.gates import Gates
from hocket.torch.module_buffers import BeforeForward, Buffers
from hocket.torch.source import ProgramSource
from hocket.torch.spans import Spans
from hocket.torch.votes import Votes

if TYPE_CHECKING:
    from hocket.torch.join import Window


class Session(places.InPlace):
    """The engine, buckets and hooks of one distributed model."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        parameters: dict[str, torch.nn.Parameter],
        source: ProgramSource,
        job: Job,
        engine: _native.Engine,
        libraries: Service,
        spans: Spans | None,
        buffers: Buffers,
        loaded: Callable[[Sequence[Bucket]], None],
    ) -> None:
        """Make the buckets, load the programs, hook every gradient. `loaded`: told of each epoch's."""
        self.job = job
        self.spans = spans
        self.engine = engine
        self.source = source
        self.optimizer = optimizer
        self.module_buffers = buffers
        self.before_forward: BeforeForward | None = None
        self.window: Window | None = None
        self._libraries = libraries
        self._loaded = loaded
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
        if source.policy is not None and source.policy.gates:
            self.gates = Gates(model, optimizer, self._gated(), self._wait_bucket, self._zero_bucket)

    @property
    def programs(self) -> list[int]:
        """By bucket: its program's number."""
        return [bucket.program for bucket in self.buckets]

    def communicates(self) -> bool:
        """Whether a backward now would."""
        return self.readiness.enabled

    def close(self) -> None:
        """Apply what is outstanding, and stop what runs beside training."""
        if self.gates is not None and self.gates.closed:
            # Others need our part of the last step; where the job has failed, that was said already.
            with contextlib.suppress(PeerError):
                self.gates.open_all()
        self.source.stop()

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
        specs = self.source.specs()
        number = self.source.epochs.current.number
        old = bucket_memory.Loaded(self._specs, self.buckets)
        self.buckets = bucket_memory.make(specs, self._parameters, self.engine, number)
        self._specs = specs
        new = bucket_memory.Loaded(specs, self.buckets)
        bucket_memory.carry_states(old, new, self.engine, self.job.rank)
        for spec, program in zip(specs, self.programs, strict=True):
            self._libraries.learn(program, spec.program)
        self.readiness = _native.Readiness(
            self.engine,
            [
                (program, len(bucket.views))
                for program, bucket in zip(self.programs, self.buckets, strict=True)
            ],
            self._on_first,
            self._adopt,
            self._twice,
            self._on_refused,
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
        self._loaded(self.buckets)

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
        self._begin()
        if self.gates is not None:
            self.gates.backward_began()
        # The same call as DistributedDataParallel's own; there is no public one.
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def _begin(self) -> None:
        self._under_way = True
        self._libraries.expect(self.programs)
        with self._naming_the_finished():
            if self.window is None:
                self.module_buffers.begin()
            else:
                self.window.announce()

    def _on_end(self) -> None:
        """End of backward: what has not come is launched as it is; then all buckets are awaited, or gates are closed."""
        self._end(barrier=self.gates is None or self.window is not None)
        if self.gates is not None:
            self.gates.backward_ended()

    def idle_step(self) -> None:
        """A step of the others, in which this rank has nothing to add."""
        self.zero_grad()
        self._begin()
        self._end(barrier=True)

    def _end(self, *, barrier: bool) -> None:
        began_ns = _native.now_ns()
        places.check(self.buckets, self._addresses)
        seen = self.readiness.order() if self.source.observes else None
        unmade = self._adopt_missing()
        with self._naming_the_finished():
            meet = self.window is None and self.module_buffers.end()
            self._votes.cast(self.source.epochs.vote(), unmade, meet=meet)
            self._unmade, self._counted, self._waited = set(unmade), False, set()
            self.readiness.finish()
            if self.window is not None:
                self.window.active()
            elif not barrier:
                self.module_buffers.arrive()
        if barrier or not self.source.epochs.settled:
            self._wait_all()
            ended_ns = _native.now_ns()
            self.source.record("wait_time", (ended_ns - began_ns) * 1e-9)
            if self._begins:
                self._load()
                if self.gates is not None:
                    self.gates.rebucket(self._gated())
        if seen is not None:
            self._agree_on_order(seen)
        self._under_way = False
        self._note()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        if self.window is not None:
            self.window.step_ended()
        self.iteration += 1

    def _adopt_missing(self) -> list[str]:
        """Names of gradients that this rank did not make."""
        unmade = []
        for bucket, index in self.readiness.missing():
            parameter = self.buckets[bucket].parameters[index]
            if parameter.grad is not self.buckets[bucket].views[index]:
                self._adopt(bucket, index, parameter)
            # Accumulated without communication before, and not made by this backward: it still counts as made.
            if not bool(self.buckets[bucket].views[index].any()):
                unmade.append(self.buckets[bucket].names[index])
        return unmade

    def _agree_on_order(self, seen: list[tuple[int, int]]) -> None:
        """All ranks, after the first step: the order in which rank 0's gradients came; those that did not come as was thought."""
        mine = None
        if self.job.rank == 0:
            names = [self.buckets[bucket].names[index] for bucket, index in seen]
            mine = list(dict.fromkeys([*names, *bucket_memory.assumed_backward(self._parameters)]))
        job = self.job
        order = job.store.gather("backward", job.rank, job.world, mine, job.settings.timeout_s)[0]
        self.source.observed(tuple(order))

    def _wait_all(self) -> None:
        for bucket in range(len(self.buckets)):
            self._wait_bucket(bucket)

    def _wait_bucket(self, bucket: int) -> None:
        """Until a bucket is reduced; gradients that no rank made become None."""
        if bucket in self._waited:
            return
        timeout_s = self.job.settings.timeout_s
        with self._naming_the_finished():
            self.readiness.wait_bucket(bucket, timeout_s)
            if not self._counted:
                self._begins = self.source.decide(self._votes.count(timeout_s))
                self._counted = True
                if self.window is None:
                    self.module_buffers.arrive()
                    if self._votes.meet:
                        self.module_buffers.meet()
        self._waited.add(bucket)
        own = self.buckets[bucket]
        if self.window is not None and self.window.factor != 1:
            own.elements.mul_(self.window.factor)
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
        if self.source.timer is None:
            return
        now_s, before_s = time.perf_counter(), self._ended_s
        self._ended_s = now_s
        sent = self.engine.bytes_sent()
        if before_s is not None:
            step_s = now_s - before_s
            self.source.record("step_time", step_s)
            self.source.record("bytes", sum(sent) - sum(self._sent))
            for rank, (now, before) in enumerate(zip(sent, self._sent, strict=True)):
                if now > before:
                    self.source.record(f"throughput.{rank}", 8 * (now - before) / step_s)
        self._sent = sent
        if self.gates is None and self.source.timer.wants_norm():
            squares = sum(float(torch.linalg.vector_norm(bucket.elements)) ** 2 for bucket in self.buckets)
            self.source.record("gradient_norm", math.sqrt(squares))

    @contextlib.contextmanager
    def _naming_the_finished(self) -> Iterator[None]:
        try:
            yield
        except PeerError as error:
            self._on_refused(error)
            raise

    def _on_refused(self, error: Exception) -> None:
        """A rank is gone: the policy is told. Where it has only finished first, a better error than that it left."""
        if not isinstance(error, PeerError) or error.rank is None or error.rank == self.job.rank:
            return
        if self.source.timer is not None:
            self.source.timer.worker_removed(error.rank)
        if error.why == "left":
            raise error.reworded(
                f"rank {error.rank} on {error.host} finished after {self.iteration} iterations and left, while rank "
                f"{self.job.rank} on {self.job.host} is in iteration {self.iteration + 1} ({error})\n"
                "hint: where ranks have unequal numbers of batches, put the loop into `with hocket.torch.join(model):`"
            ) from None

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

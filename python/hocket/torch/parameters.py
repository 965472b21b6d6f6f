"""A model whose ranks train alone and exchange parameters every so many steps (local SGD): buckets hold the parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hocket import _native
from hocket.errors import UsageError
from hocket.launch.rendezvous import Job
from hocket.libraries.service import Service
from hocket.torch import buckets as bucket_memory
from hocket.torch.module_buffers import BeforeForward, Buffers
from hocket.torch.source import ProgramSource
from hocket.torch.spans import Spans
from hocket.torch.votes import Votes


class ParameterSession:
    """Hooks the optimizer's step; parameters are views into buckets, their values stay."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        parameters: dict[str, torch.nn.Parameter],
        source: ProgramSource,
        job: Job,
        engine: _native.Engine,
        libraries: Service,
        spans: Spans | None,
        buffers: Buffers,
        loaded: Callable[[Sequence[bucket_memory.Bucket]], None],
    ) -> None:
        """Replicas are equal at the start: what state starts as is the same on all ranks."""
        policy = source.policy
        if policy is None or policy.every < 1:
            raise UsageError("parameters are exchanged once in `every` steps, at least 1")
        self.job, self.engine, self.source, self.spans = job, engine, source, spans
        self._every = policy.every
        self.module_buffers = buffers
        self._loaded = loaded
        self.before_forward: BeforeForward | None = None
        self._libraries = libraries
        self._steps = 0
        self._parameters = parameters
        self._votes = Votes(engine, job.hosts, list(parameters))
        self.buckets: list[bucket_memory.Bucket] = []
        self._specs: list[bucket_memory.Spec] = []
        self._load()
        optimizer.register_step_post_hook(self._on_step)

    @property
    def programs(self) -> list[int]:
        """By bucket: its program's number."""
        return [bucket.program for bucket in self.buckets]

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Gradients are not communicated anyway."""
        return contextlib.nullcontext()

    def communicates(self) -> bool:
        """Every forward is of a step."""
        return True

    def close(self) -> None:
        """Stop what runs beside training."""
        if self.source.timer is not None:
            self.source.timer.stop()

    def _load(self) -> None:
        loaded = self.programs
        specs = self.source.specs()
        number = self.source.epochs.current.number
        old = bucket_memory.Loaded(self._specs, self.buckets)
        self.buckets = bucket_memory.make(specs, self._parameters, self.engine, number)
        with torch.no_grad():
            for bucket in self.buckets:
                for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                    view.copy_(parameter)
                    parameter.data = view
        bucket_memory.start_states(specs, self.buckets, self.engine)
        bucket_memory.carry_states(old, bucket_memory.Loaded(specs, self.buckets), self.engine, self.job.rank)
        self._specs = specs
        for spec, program in zip(specs, self.programs, strict=True):
            self._libraries.learn(program, spec.program)
        for program in loaded:
            self._libraries.forget(program)
            self.engine.unload(program)
        self._loaded(self.buckets)

    def _on_step(self, *_: Any) -> None:
        self._steps += 1
        if self._steps % self._every:
            return
        began_ns = _native.now_ns()
        timeout_s = self.job.settings.timeout_s
        self.module_buffers.begin()
        self._votes.cast(self.source.epochs.vote(), [], meet=self.module_buffers.end())
        self._libraries.expect(self.programs)
        for program in self.programs:
            self.engine.launch(program)
        for program in self.programs:
            self.engine.wait(program, timeout_s)
        begins = self.source.decide(self._votes.count(timeout_s))
        self.module_buffers.arrive()
        if self._votes.meet:
            self.module_buffers.meet()
        ended_ns = _native.now_ns()
        self.source.record("wait_time", (ended_ns - began_ns) * 1e-9)
        if self.spans is not None:
            self.engine.mark("wait", self._steps - 1, began_ns, ended_ns)
        if begins:
            self._load()

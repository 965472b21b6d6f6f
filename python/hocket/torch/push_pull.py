"""A worker of parameter servers in training: gradients leave as backward makes them, values come back before a layer needs them.

As in `Session`, a step runs in Python only the native readiness hook per gradient, one callback when the first gradient
arrives, and one wait per gate. A gate here waits for the parameter's new value, which is then copied into it: a layer
that still runs backward may read the old one until then. The optimizer itself changes nothing: it has no gradients when
it steps.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from hocket import _native
from hocket.artefacts.gradient import Gradient
from hocket.errors import PeerError, UsageError
from hocket.launch.rendezvous import Job
from hocket.parameter_server.choice import with_roles
from hocket.parameter_server.description import Description
from hocket.parameter_server.programs import Loaded
from hocket.policy.policy import Value
from hocket.torch import optimizers
from hocket.torch.framework import Torch
from hocket.torch.hyperparameters import numbers_of
from hocket.training.buckets import CompiledBucket, Launch, LoadedBucket
from hocket.training.places import Hooks, InPlace
from hocket.training.serve import LEAVE, STEP
from hocket.training.spans import Spans

PATIENCE_S = 1.0
"""Beyond the time-out: a server that holds a value back knows the late worker, and must be able to report it first."""


class PushPullSession(InPlace):
    """The keys, hooks and gates of one model on one worker."""

    def __init__(
        self,
        framework: Torch,
        *,
        gradients: Sequence[Gradient],
        description: Description,
        loaded: Loaded,
        job: Job,
        engine: _native.Engine,
        spans: Spans | None,
    ) -> None:
        """Start from the servers' values, hook every gradient, gate every layer. `job`: of the workers alone."""
        self.job, self.spans, self.framework = job, spans, framework
        self.iteration = 0
        self._engine = engine
        self._description = description
        self._optimizer = framework.optimizer
        self._owner = os.getpid()
        self._closed = False
        self._waited: set[int] = set()
        self._step = loaded.steps[job.rank]
        self._header = memoryview(self._step.memory["header"]).cast("B").cast("d")
        self.buckets: list[LoadedBucket] = []
        self._parameters: list[torch.nn.Parameter] = []
        self._pulled: list[torch.Tensor] = []
        for key, gradient in enumerate(gradients):
            part = loaded.keys[key, job.rank]
            memory = part.memory["push"]
            view = framework.array(memory, 0, gradient.dtype, gradient.shape)
            launch = Launch(CompiledBucket((gradient,), key, part.program), part.number, key)
            elements = framework.array(memory, 0, gradient.dtype, (gradient.elements,))
            self.buckets.append(LoadedBucket((gradient,), memory, elements, (view,), (launch,)))
            self._parameters.append(framework.trained[gradient.name])
            self._pulled.append(framework.array(part.memory["pull"], 0, gradient.dtype, gradient.shape))
        self._begin(loaded)
        self._hook()
        self._replace_step_and_zero_grad()
        names = [bucket.names for bucket in self.buckets]
        self.gates = framework.gate(names, self._wait_bucket, self._zero_bucket)

    def start(self) -> None:
        """Servers run already."""

    def communicates(self) -> bool:
        """Whether a backward now would."""
        return self.readiness.enabled

    def record(self, name: str, value: float) -> None:
        """Statistics are not used."""

    def agreed(self) -> dict[str, Value]:
        """Only the epoch, which is the only one."""
        return {"epoch": 0}

    def settle(self) -> None:
        """Raise UsageError: gradients leave, and values come back."""
        raise UsageError(
            "gradients are not there to be clipped: they were pushed, and parameter servers update with them\n"
            "hint: clip without parameter servers, or scale the loss"
        )

    def flush(self) -> None:
        """Values are there as soon as forward needs them."""

    def joinable(self) -> None:
        """Raise UsageError: it is not needed."""
        raise UsageError(
            "join: parameter servers let workers finish one after the other by themselves\n"
            "hint: give every rank the same number of batches"
        )

    def close(self) -> None:
        """Receive outstanding values, and tell the servers that this worker leaves."""
        if self._closed:
            return
        self._closed = True
        # If the job has failed, that has been reported already.
        with contextlib.suppress(PeerError):
            self.gates.open_all()
            self._wait(self._step.number)
            self._header[0] = LEAVE
            self._engine.launch(self._step.number)
            self._wait(self._step.number)

    def _begin(self, loaded: Loaded) -> None:
        """Make worker 0's parameters the servers' first values, and everybody's."""
        with torch.no_grad():
            if self.job.rank == 0:
                for bucket, parameter in zip(self.buckets, self._parameters, strict=True):
                    bucket.views[0].copy_(parameter)
        begins = {key: part.number for (key, worker), part in loaded.first.items() if worker == self.job.rank}
        if self.job.rank == 0:
            begins = {key: bucket.program for key, bucket in enumerate(self.buckets)}
        for number in begins.values():
            self._engine.launch(number)
        for key, number in begins.items():
            # The others may still be starting.
            self._wait(number, self.job.settings.start_timeout_s)
            with torch.no_grad():
                self._parameters[key].copy_(self._pulled[key])
        if self.job.rank != 0:
            for number in begins.values():
                self._engine.unload(number)

    def _hook(self) -> None:
        self.readiness = _native.Readiness(
            self._engine,
            [(bucket.program, 1) for bucket in self.buckets],
            self._on_first,
            self._adopt,
            self._twice,
            lambda _error: None,
        )
        self.hooks = Hooks(self.buckets, self.readiness)
        self.zero_grad()
        self.framework.hook(self.buckets, self.hooks)

    def _replace_step_and_zero_grad(self) -> None:
        """Gates wrap these once more; the optimizer has nothing left to do."""
        optimizer = self._optimizer
        optimizer.step = optimizers.wrapped_step(optimizer, self._on_step)  # type: ignore[method-assign]
        self.framework.on_zero_grad(self.zero_grad)

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if any(each is not None for each in (*args, *kwargs.values())):
            raise UsageError(
                "step() with a closure: parameter servers step when the gradients of a backward arrive\n"
                "hint: call backward and step one after the other"
            )
        own = zip(self.buckets, self._parameters, strict=True)
        local = next((bucket.names[0] for bucket, each in own if each.grad is not None), None)
        if local is not None:
            raise UsageError(
                f"step() with a gradient of `{local}` that was not pushed\n"
                "hint: the last backward before step() must be outside no_sync()"
            )
        return plain(*args, **kwargs)

    def _on_first(self) -> None:
        if os.getpid() != self._owner:
            raise UsageError(
                "backward in a forked child of the process that distributed the model\n"
                "hint: train in the process that called `distribute`"
            )
        self.gates.backward_began()
        self._waited = set()
        self._wait(self._step.number)
        self._header[0], self._header[1] = STEP, self.iteration
        for at, number in enumerate(numbers_of(self._optimizer, self._description.groups), 2):
            self._header[at] = number
        self._engine.launch(self._step.number)
        self.framework.when_backward_ends(self._on_end)

    def _on_end(self) -> None:
        """End of backward: missing gradients are pushed as they are, and all gates are closed."""
        began_ns = _native.now_ns()
        self.framework.check_in_place(self.buckets)
        for key, index in self.readiness.missing():
            self.framework.adopt(*self.hooks.gradient(key, index))
        self.readiness.finish()
        self.gates.backward_ended()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        self.iteration += 1

    def _wait_bucket(self, key: int) -> None:
        """Wait for the key's new value; the parameter takes it, and has no gradient left for the optimizer."""
        if key in self._waited:
            return
        bucket, parameter = self.buckets[key], self._parameters[key]
        self._wait(bucket.program)
        with optimizers.outside_forward(), torch.no_grad():
            parameter.copy_(self._pulled[key])
        parameter.grad = None
        self._waited.add(key)
        self.readiness.applied(key)

    def _zero_bucket(self, key: int) -> None:
        self.framework.zero(self.buckets[key])

    def _wait(self, number: int, timeout_s: float | None = None) -> None:
        try:
            self._engine.wait(number, (timeout_s or self.job.settings.timeout_s) + PATIENCE_S)
        except PeerError as error:
            raise with_roles(error, self._description.workers) from None

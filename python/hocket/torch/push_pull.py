"""A worker of parameter servers in training: gradients leave as backward makes them, values come back before a layer needs them.

As in `Session`, Python runs in a step only the native readiness hook per gradient, one callback when the first gradient comes, and
one wait per gate. What a gate waits for here is the parameter's new value, which is then copied into it: a layer that still runs
backward may read the old one until then. The optimizer itself changes nothing: it has no gradients when it steps.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from hocket import _native
from hocket.errors import PeerError, UsageError
from hocket.launch.rendezvous import Job
from hocket.parameter_server.choice import with_roles
from hocket.parameter_server.description import Description
from hocket.parameter_server.programs import Loaded
from hocket.torch import optimizers, places
from hocket.torch.buckets import Bucket
from hocket.torch.gates import Gates
from hocket.torch.hyperparameters import numbers_of
from hocket.torch.serve import LEAVE, STEP
from hocket.torch.spans import Spans

PATIENCE_S = 1.0
"""Beyond the time-out: a server that holds a value back knows which worker is late, and is to say so first."""


class PushPullSession(places.InPlace):
    """The keys, hooks and gates of one model on one worker."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        parameters: dict[str, torch.nn.Parameter],
        description: Description,
        loaded: Loaded,
        job: Job,
        engine: _native.Engine,
        spans: Spans | None,
    ) -> None:
        """Start from the servers' values, hook every gradient, gate every layer. `job`: of the workers alone."""
        self.job, self.spans = job, spans
        self.iteration = 0
        self._engine = engine
        self._description = description
        self._optimizer = optimizer
        self._owner = os.getpid()
        self._closed = False
        self._waited: set[int] = set()
        self._step = loaded.steps[job.rank]
        self._header = memoryview(self._step.memory["header"]).cast("B").cast("d")
        self.buckets: list[Bucket] = []
        self._pulled: list[torch.Tensor] = []
        for key, (name, parameter) in enumerate(parameters.items()):
            part = loaded.keys[key, job.rank]
            elements = torch.frombuffer(part.memory["push"], dtype=parameter.dtype)
            bucket = Bucket(
                memory=part.memory["push"],
                elements=elements,
                names=(name,),
                parameters=(parameter,),
                views=(elements.view(parameter.shape),),
                program=part.number,
            )
            self.buckets.append(bucket)
            self._pulled.append(
                torch.frombuffer(part.memory["pull"], dtype=parameter.dtype).view(parameter.shape)
            )
        self._begin(loaded)
        self._hook(parameters)
        self._replace_step_and_zero_grad()
        self._addresses = places.addresses(self.buckets)
        gated = [bucket.parameters for bucket in self.buckets]
        self.gates = Gates(model, optimizer, gated, self._wait_bucket, self._zero_bucket)

    def close(self) -> None:
        """Take what is still to come, and tell the servers that this worker leaves."""
        if self._closed:
            return
        self._closed = True
        # Where the job has failed, that was said already.
        with contextlib.suppress(PeerError):
            self.gates.open_all()
            self._wait(self._step.number)
            self._header[0] = LEAVE
            self._engine.launch(self._step.number)
            self._wait(self._step.number)

    def _begin(self, loaded: Loaded) -> None:
        """Worker 0's parameters become the servers' first values, and everybody's."""
        with torch.no_grad():
            if self.job.rank == 0:
                for bucket in self.buckets:
                    bucket.views[0].copy_(bucket.parameters[0])
        begins = {key: part.number for (key, worker), part in loaded.first.items() if worker == self.job.rank}
        if self.job.rank == 0:
            begins = {key: bucket.program for key, bucket in enumerate(self.buckets)}
        for number in begins.values():
            self._engine.launch(number)
        for key, number in begins.items():
            # The others may still be starting.
            self._wait(number, self.job.settings.start_timeout_s)
            with torch.no_grad():
                self.buckets[key].parameters[0].copy_(self._pulled[key])
        if self.job.rank != 0:
            for number in begins.values():
                self._engine.unload(number)

    def _hook(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self.readiness = _native.Readiness(
            self._engine,
            [(bucket.program, 1) for bucket in self.buckets],
            self._on_first,
            self._adopt,
            self._twice,
            lambda _error: None,
        )
        for key, parameter in enumerate(parameters.values()):
            bucket = self.buckets[key]
            parameter.register_post_accumulate_grad_hook(self.readiness.hook(key, 0, bucket.views[0]))
            bucket.zero()

    def _replace_step_and_zero_grad(self) -> None:
        """Gates wrap these once more; what is left for the optimizer is to do nothing."""
        optimizer = self._optimizer
        optimizer.step = optimizers.wrapped_step(optimizer, self._on_step)  # type: ignore[method-assign]
        before = optimizer.zero_grad
        owned = {id(bucket.parameters[0]) for bucket in self.buckets}

        def zero_grad(set_to_none: bool = True) -> None:
            if any(id(each) not in owned for each in optimizers.all_parameters(optimizer)):
                before(set_to_none)
            self.zero_grad()

        optimizer.zero_grad = zero_grad  # type: ignore[method-assign]

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if any(each is not None for each in (*args, *kwargs.values())):
            raise UsageError(
                "step() with a closure: parameter servers step when the gradients of a backward arrive\n"
                "hint: call backward and step one after the other"
            )
        local = next((each.names[0] for each in self.buckets if each.parameters[0].grad is not None), None)
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
        # The same call as DistributedDataParallel's own; there is no public one.
        torch.autograd.Variable._execution_engine.queue_callback(self._on_end)

    def _on_end(self) -> None:
        """End of backward: gradients that it did not make are pushed as they are, and all gates are closed."""
        began_ns = _native.now_ns()
        places.check(self.buckets, self._addresses)
        for key, index in self.readiness.missing():
            parameter = self.buckets[key].parameters[index]
            if parameter.grad is not self.buckets[key].views[index]:
                self._adopt(key, index, parameter)
        self.readiness.finish()
        self.gates.backward_ended()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        self.iteration += 1

    def _wait_bucket(self, key: int) -> None:
        """Until the key's new value is there; the parameter takes it, and has no gradient left for the optimizer."""
        if key in self._waited:
            return
        bucket = self.buckets[key]
        self._wait(bucket.program)
        with optimizers.outside_forward(), torch.no_grad():
            bucket.parameters[0].copy_(self._pulled[key])
        bucket.parameters[0].grad = None
        self._waited.add(key)
        if len(self._waited) == len(self.buckets):
            self.readiness.reset()

    def _zero_bucket(self, key: int) -> None:
        self.buckets[key].zero()

    def _wait(self, number: int, timeout_s: float | None = None) -> None:
        try:
            self._engine.wait(number, (timeout_s or self.job.settings.timeout_s) + PATIENCE_S)
        except PeerError as error:
            raise with_roles(error, self._description.workers) from None

"""PyTorch as a framework of `hocket.training`: implements `Framework` for one model and its optimizer."""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from hocket import _native
from hocket.artefacts.learning import Learning
from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.anchor import Anchor
from hocket.torch.announced import Announced
from hocket.torch.backward import when_it_ends
from hocket.torch.devices import accelerator
from hocket.torch.divided_gradient import DividedGradient
from hocket.torch.division import Division
from hocket.torch.forward_hooks import Hook, before_forward
from hocket.torch.gates import Gates
from hocket.torch.hyperparameters import learning_of, options_of
from hocket.torch.lent import array_of, bytes_of, tensor_over
from hocket.torch.local import Local
from hocket.torch.looks import Looks
from hocket.torch.packing import packed, unpacked
from hocket.torch.parameters import check_steps_some, check_type, described, trained_of, write_gradient
from hocket.torch.remote import Remote
from hocket.torch.scaled_rates import as_in_step
from hocket.torch.scales import Scales
from hocket.torch.uncompiled import uncompiled
from hocket.torch.workload import Workload
from hocket.torch.wrappers import refuse_wrapped
from hocket.training.memory.buckets import LoadedBucket, over
from hocket.training.memory.framework import Hints, Hooks, Values
from hocket.training.memory.gathered import Numbers, RowBytes
from hocket.training.memory.gradients import Parameter
from hocket.training.memory.replicas import Options
from hocket.training.memory.state_parts import StateBytes


class Torch:
    """A model and its optimizer in PyTorch. Gradients are views into buckets, filled by autograd itself."""

    hints = Hints(
        unequal_batches="put the loop into `with hocket.torch.join(model):`",
        non_finite=" With a GradScaler this is normal while it finds its scale.",
        made_twice="a layer that two reentrant checkpoints share does that: "
        "torch.utils.checkpoint.checkpoint(…, use_reentrant=False)",
    )

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Take the model and its optimizer. UsageError: wrong types, nothing to train, or tensors that Hocket cannot move."""
        for what, given, kind in (
            ("model", model, torch.nn.Module),
            ("optimizer", optimizer, torch.optim.Optimizer),
        ):
            if not isinstance(given, kind):
                raise UsageError(
                    f"the {what} is of type {type(given).__name__}, not {kind.__module__}.{kind.__name__}\n"
                    "hint: model, optimizer = hk.distribute(model, optimizer)"
                )
        refuse_wrapped(model)
        if not hasattr(optimizer, "_optimizer_step_post_hooks"):
            raise UsageError(
                f"the optimizer is {type(optimizer).__name__}, a wrapper of another one, as Accelerate puts around it\n"
                "hint: hk.distribute(model, optimizer) with what it wraps, before that is prepared"
            )
        self.model, self.optimizer = model, optimizer
        self.trained = trained_of(model)
        self.device = accelerator(next(iter(self.trained.values())).device)
        check_steps_some(optimizer, self.trained)
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._undo: list[Callable[[], None]] = []
        self._zeroed: Callable[[Iterable[torch.Tensor]], None] | None = None
        self._announced = Announced()
        self._gates: Gates | None = None
        self.scales = Scales(optimizer)
        self.anchor = Anchor(model, optimizer, self.trained, self.scales)
        self.local = Local(model, optimizer, self.trained)
        self.looks = Looks(model, self.trained, lambda: {**self.anchor.values(), **self.local.values()})
        self.division = Division(optimizer, self.trained)
        self._rates: optimizers.Rates | None = None

    def parameters(self) -> list[Parameter]:
        """Return all parameters, and buffers."""
        return list(described(self.model, self.trained))

    def hook(self, buckets: Sequence[LoadedBucket], readiness: Hooks, *, moves: bool = True) -> None:
        """Count gradients, after autograd has accumulated each."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for at, bucket in enumerate(buckets):
            for position, (name, view) in enumerate(zip(bucket.names, bucket.views, strict=True)):
                parameter = self.trained[name]
                if moves and parameter.grad is not None and not bucket.sparse:
                    self.adopt(name, view)
                ready = readiness.hook(at, position, view)
                self._hooks.append(self._announced.hook(name, parameter, ready))

    @uncompiled
    def when_backward_ends(self, call: Callable[[], None]) -> None:
        """Call `call` then. UsageError: compiled autograd has no end that can be awaited, or a wrapper runs the backward."""
        compiled = sys.modules.get("torch._dynamo.compiled_autograd")
        if getattr(compiled, "in_compiled_autograd_region", False):
            raise UsageError(
                "the backward is compiled (torch._dynamo.compiled_autograd): hooks of gradients are called outside of autograd\n"
                "hint: torch._dynamo.config.compiled_autograd = False; torch.compile(model) itself works"
            )
        if not self._announced.seen:
            refuse_wrapped(self.model)
        self._announced.begin()

        def ended() -> None:
            call()
            self._announced.end()

        when_it_ends(ended)

    def gate(
        self,
        buckets: Sequence[Sequence[str]],
        wait: Callable[[int], None],
        values: Values | None = None,
    ) -> Gates:
        """Make gates at the forward of each layer."""
        parameters = [[self.trained[name] for name in bucket] for bucket in buckets]
        if self._gates is None:
            self.division.install()
            self._gates = Gates(
                self.model,
                self.optimizer,
                parameters,
                wait,
                values=values,
                updated=self.division.updated,
                zeroed=self._zeroed,
            )
        else:
            self._gates.rebucket(parameters)
        return self._gates

    def on_zero_grad(self, call: Callable[[Sequence[str]], None]) -> None:
        """Call `call` after `zero_grad(set_to_none=False)`."""
        optimizer = self.optimizer
        before = optimizer.zero_grad
        names = {id(each): name for name, each in self.trained.items()}

        def zeroed(parameters: Iterable[torch.Tensor]) -> None:
            own = ((names.get(id(each)), each.grad) for each in parameters)
            call([name for name, gradient in own if name is not None and gradient is not None])

        @functools.wraps(before)
        def zero_grad(set_to_none: bool = True) -> None:
            before(set_to_none)
            if not set_to_none:
                zeroed(optimizers.all_parameters(optimizer))

        self._zeroed = zeroed
        optimizer.zero_grad = zero_grad  # type: ignore[method-assign]
        self._undo.append(functools.partial(optimizers.put_back, optimizer, zero_grad, before))

    def on_step(self, call: Callable[[], None], *, before: bool = False) -> None:
        """Call `call` after the optimizer's step, or `before` it."""

        def stepped(*_: object) -> None:
            call()

        # This hook reads nothing of a step that gates defer.
        stepped.reads_nothing = True  # type: ignore[attr-defined]
        optimizer = self.optimizer
        register = optimizer.register_step_pre_hook if before else optimizer.register_step_post_hook
        self._undo.append(register(stepped).remove)

    def on_save(self, call: Callable[[], None]) -> None:
        """Call `call` before `model.state_dict()`."""
        self._undo.append(self.model.register_state_dict_pre_hook(Hook(call)).remove)

    def remote(self, names: Sequence[str]) -> Remote:
        """Return the optimizer of these parameters, which servers run."""
        made = Remote({name: self.trained[name] for name in names}, self.optimizer)
        self._undo.append(made.end)
        return made

    def rates(self, factors: Mapping[str, float]) -> None:
        """Multiply learning rates of these parameters in the next step."""
        if self._rates is None:
            self._rates = optimizers.Rates(self.optimizer, self.scales)
            self._announced.alone = self.optimizer
            if not factors:
                return
        self._rates.of_next_step({id(self.trained[name]): factor for name, factor in factors.items()})

    def step(self) -> None:
        """Step, with the optimizer's hooks."""
        self.scales.step()

    def learning(self) -> Learning | None:
        """Return rate and momentum of the group with the largest rate."""
        with as_in_step(self.optimizer):
            return learning_of(self.optimizer)

    def workload(self, *, gradients: bool = True) -> Workload:
        """Look at what an iteration computes, by hooks; `gradients`: and count how often gradients are made."""
        return Workload(self.model, self.trained if gradients else {})

    def optimizer_state(self) -> bytes:
        """Return the optimizer's state in the form of `torch.save`."""
        return packed(self.optimizer.state_dict()) if self.optimizer.state else b""

    def load_optimizer_state(self, saved: bytes) -> None:
        """Load another rank's optimizer state."""
        self.optimizer.load_state_dict(unpacked(saved))

    def packed(self, values: Any) -> bytes:
        """Return plain data and tensors in the form of `torch.save`."""
        return packed(values)

    def unpacked(self, data: bytes) -> Any:
        """Return values that another rank has `packed`. UsageError: they are more than plain data and tensors."""
        try:
            return torch.load(io.BytesIO(data), weights_only=True)
        except pickle.UnpicklingError as error:
            raise UsageError(
                f"what hk.extra_state registers on other ranks is no plain data: {error}\n"
                "hint: ranks that join take numbers, texts, tensors, and lists and dictionaries of them"
            ) from None

    def rates_of_groups(self) -> list[dict[str, Any]]:
        """Return the numbers of the optimizer's groups, which schedulers change."""
        return optimizers.rates_of(self.optimizer)

    def set_rates_of_groups(self, rates: Sequence[Mapping[str, Any]]) -> None:
        """Set numbers of groups from another rank."""
        optimizers.set_rates_of(self.optimizer, rates)

    def before_training_forward(self, call: Callable[[], None]) -> None:
        """Call `call` before training forwards of the whole model in which gradients are wanted."""

        def entering() -> None:
            if self.model.training and torch.is_grad_enabled():
                call()

        before_forward(self.model, entering)

    def release(self) -> None:
        """Leave the model and its optimizer as they were before, for another instance. Values and gradients stay."""
        if self._gates is not None:
            self._gates.remove()
        for each in self._hooks:
            each.remove()
        for undo in reversed(self._undo):
            undo()
        self._hooks, self._undo = [], []
        self._announced.release()
        self.anchor.release()
        self.local.release()
        self.scales.forget_step()
        if self._rates is not None:
            self._rates.end()

    def array(self, memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a tensor over the memory, or over the device's twin of it."""
        make = tensor_over if self.device is None else self.device.array
        return make(memory, start, dtype, shape)

    def adopt(self, name: str, view: torch.Tensor) -> None:
        """Copy a gradient that autograd has made anew into `view`: after `grad = None`, and of sparse layers."""
        parameter = self.trained[name]
        gradient = parameter.grad
        if gradient is view:
            return
        if isinstance(gradient, DividedGradient):
            raise UsageError(
                f"backward adds to a gradient of `{name}` that its owners have reduced\n"
                "hint: optimizer.zero_grad() before it, and no_sync() for all but the last backward of a step"
            )
        write_gradient(name, gradient, view, add=False)
        parameter.grad = view

    def gradient(self, name: str) -> torch.Tensor | None:
        """Return the gradient, wherever it is."""
        return self.trained[name].grad

    def add(self, name: str, view: torch.Tensor) -> None:
        """Add a gradient that was made after `grad = None`, while gradients are summed over iterations."""
        parameter = self.trained[name]
        gradient = parameter.grad
        if gradient is view:
            return
        self.scales.carry(view)
        write_gradient(name, gradient, view, add=True)
        parameter.grad = view

    def show(self, bucket: LoadedBucket, names: Collection[str] | None = None) -> None:
        """Show views as gradients, without touching memory."""
        for view, own in self._moved(bucket):
            view.data = own
        for name, view in zip(bucket.names, bucket.views, strict=True):
            if names is None or name in names:
                self.trained[name].grad = view

    def drop(self, name: str) -> None:
        """Set the gradient to None: optimizers skip its parameter."""
        self.trained[name].grad = None

    def rows(self, name: str, factor: float) -> tuple[Numbers, RowBytes]:
        """Return a sparse gradient's rows, added up by number; of a dense gradient the rows that are not zero."""
        parameter = self.trained[name]
        gradient = parameter.grad
        row_elements = parameter.shape[1:].numel()
        if gradient is None:
            return np.empty(0, np.int64), np.empty((0, row_elements * parameter.element_size()), np.uint8)
        check_type(name, parameter, gradient)
        if gradient.is_sparse and gradient.sparse_dim() > 1:
            gradient = gradient.to_dense()
        if gradient.is_sparse:
            own = gradient.coalesce()
            numbers, rows = own.indices()[0], own.values()
        else:
            numbers = gradient.reshape(len(gradient), -1).any(1).nonzero().flatten()
            rows = gradient[numbers]
        part = (rows * factor).reshape(len(numbers), row_elements).contiguous().cpu()
        return array_of(numbers.contiguous().cpu()), bytes_of(part).reshape(
            len(numbers), row_elements * part.element_size()
        )

    def set_rows(self, name: str, numbers: Numbers, rows: RowBytes) -> None:
        """Set rows of a gradient, which is dense if a sparse and a dense layer share the parameter."""
        parameter = self.trained[name]
        device = parameter.device
        places = torch.from_numpy(numbers).to(device)
        values = (
            torch.from_numpy(rows).view(parameter.dtype).view(len(numbers), *parameter.shape[1:]).to(device)
        )
        if parameter.grad is not None and not parameter.grad.is_sparse:
            parameter.grad.zero_()
            parameter.grad[places] = values
        else:
            parameter.grad = torch.sparse_coo_tensor(
                places.unsqueeze(0), values, parameter.shape, is_coalesced=True, check_invariants=False
            )

    def check_announced(self) -> None:
        """Check gradients by their versions."""
        self._announced.check()

    def check_in_place(self, buckets: Sequence[LoadedBucket]) -> None:
        """Move back gradients to which conversions gave other memory: `model.to(memory_format=…)`, `model.double()`."""
        for bucket in buckets:
            for view, own in self._moved(bucket):
                own.copy_(view)
                view.data = own

    def _moved(self, bucket: LoadedBucket) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield gradients that lie outside their bucket: their arrays, and arrays over their places."""
        begin, end = bucket.memory.address, bucket.memory.address + len(bucket.memory)
        if self.device is not None:
            begin, end = self.device.extent(bucket.memory)
        for at, view in enumerate(bucket.views):
            if view.numel() and not begin <= view.data_ptr() < end:
                own = over(bucket.gradients, bucket.memory, self.array).views[at]
                check_type(bucket.names[at], own, view)
                yield view, own

    def hold_parameters(self, buckets: Sequence[LoadedBucket]) -> None:
        """Make `parameter.data` the view."""
        with torch.no_grad():
            for bucket in buckets:
                for name, view in zip(bucket.names, bucket.views, strict=True):
                    parameter = self.trained[name]
                    # A script may have put other memory under the parameter: an average of weights, another memory format.
                    if parameter.data_ptr() != view.data_ptr() or parameter.stride() != view.stride():
                        check_type(name, view, parameter, "value")
                        view.copy_(parameter)
                        parameter.data = view

    def options(self) -> Options:
        """Return the options of the optimizer's groups, with the name of its class, and the factor of late gradients."""
        groups = options_of(self.optimizer)
        return (
            groups if self.scales.last is None else [{**each, "scale": self.scales.last} for each in groups]
        )

    def state(self) -> list[StateBytes]:
        """Return views, but for tensors with gaps or on a device."""
        return [bytes_of(each.detach().contiguous().cpu()) for each in self._state()]

    @contextmanager
    def filling(self) -> Iterator[list[StateBytes]]:
        """Yield arrays in place, but for tensors with gaps or on a device."""
        state = [each.detach() for each in self._state()]
        whole = [each.contiguous().cpu() for each in state]
        yield [bytes_of(each) for each in whole]
        for each, filled in zip(state, whole, strict=True):
            if filled.data_ptr() != each.data_ptr():
                each.copy_(filled)

    def _state(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]

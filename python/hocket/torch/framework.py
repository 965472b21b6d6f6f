"""PyTorch as a framework of `hocket.training`: implements `Framework` for one model and its optimizer."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

import torch
from hocket import _native
from hocket.artefacts.learning import Learning
from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.division import DividedGradient, Division
from hocket.torch.dtypes import DTYPES, TORCH_DTYPES
from hocket.torch.gates import Gates
from hocket.torch.hyperparameters import learning_of
from hocket.torch.remote import Remote
from hocket.torch.workload import Workload
from hocket.training.buckets import LoadedBucket
from hocket.training.framework import Hints, Hooks, StateBytes, Values
from hocket.training.gathered import Numbers, RowBytes
from hocket.training.gradients import Parameter
from hocket.training.shards import Range, Shard, State


class Torch:
    """Gradients are views into buckets, filled by autograd itself."""

    hints = Hints(
        unequal_batches="put the loop into `with hocket.torch.join(model):`",
        non_finite=" With a GradScaler this is normal while it finds its scale.",
        made_twice="a layer that two reentrant checkpoints share does that: "
        "torch.utils.checkpoint.checkpoint(…, use_reentrant=False)",
    )

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """UsageError: they are something else, there is nothing to train, or tensors that Hocket cannot move."""
        for what, given, kind in (
            ("model", model, torch.nn.Module),
            ("optimizer", optimizer, torch.optim.Optimizer),
        ):
            if not isinstance(given, kind):
                raise UsageError(
                    f"the {what} is of type {type(given).__name__}, not {kind.__module__}.{kind.__name__}\n"
                    "hint: model, optimizer = hk.distribute(model, optimizer)"
                )
        self.model, self.optimizer = model, optimizer
        self.trained = _trained(model)
        _steps_some(optimizer, self.trained)
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._hooked: set[int] = set()
        self._gates: Gates | None = None
        self.division = Division(optimizer)
        self._rates: optimizers.Rates | None = None

    def parameters(self) -> list[Parameter]:
        """All, and buffers."""
        return list(_parts(self.model, self.trained))

    def hook(self, buckets: Sequence[LoadedBucket], readiness: Hooks, *, moves: bool = True) -> None:
        """After autograd has accumulated a gradient."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._hooked = [], set()
        for at, bucket in enumerate(buckets):
            for position, (name, view) in enumerate(zip(bucket.names, bucket.views, strict=True)):
                parameter = self.trained[name]
                if moves and parameter.grad is not None and not bucket.sparse:
                    self.adopt(name, view)
                ready = readiness.hook(at, position, view)
                self._hooks.append(parameter.register_post_accumulate_grad_hook(ready))
                self._hooked.add(id(parameter))

    def when_backward_ends(self, call: Callable[[], None]) -> None:
        """DistributedDataParallel makes the same call; there is no public one."""
        torch.autograd.Variable._execution_engine.queue_callback(call)

    def gate(
        self,
        buckets: Sequence[Sequence[str]],
        wait: Callable[[int], None],
        zero: Callable[[int], None],
        values: Values | None = None,
    ) -> Gates:
        """At the forward of each layer."""
        parameters = [[self.trained[name] for name in bucket] for bucket in buckets]
        if self._gates is None:
            self.division.install()
            self._gates = Gates(
                self.model,
                self.optimizer,
                parameters,
                wait,
                zero,
                values=values,
                updated=self.division.updated,
            )
        else:
            self._gates.rebucket(parameters)
        return self._gates

    def on_zero_grad(self, zero: Callable[[], None]) -> None:
        """`zero_grad` zeroes whole buckets; gradients of uncommunicated parameters are handled as before."""
        optimizer = self.optimizer
        before = optimizer.zero_grad

        def zero_grad(set_to_none: bool = True) -> None:
            others = (each for group in optimizer.param_groups for each in group["params"])
            if any(id(each) not in self._hooked for each in others):
                before(set_to_none)
            zero()

        optimizer.zero_grad = zero_grad  # type: ignore[method-assign]

    def on_step(self, call: Callable[[], None]) -> None:
        """After the optimizer's."""

        def stepped(*_: object) -> None:
            call()

        # It reads nothing of a step that gates put off.
        stepped.reads_nothing = True  # type: ignore[attr-defined]
        self.optimizer.register_step_post_hook(stepped)

    def on_save(self, call: Callable[[], None]) -> None:
        """Before `model.state_dict()`."""
        self.model.register_state_dict_pre_hook(lambda *_: call())

    def remote(self, names: Sequence[str]) -> Remote:
        """Of `torch.optim`."""
        return Remote({name: self.trained[name] for name in names}, self.optimizer)

    def rates(self, factors: Mapping[str, float]) -> None:
        """Of the groups of its parameters."""
        if self._rates is None:
            self._rates = optimizers.Rates(self.optimizer)
        self._rates.of_next_step({id(self.trained[name]): factor for name, factor in factors.items()})

    def step(self) -> None:
        """With its hooks."""
        self.optimizer.step()

    def learning(self) -> Learning | None:
        """Of its groups, the one with the largest rate."""
        return learning_of(self.optimizer)

    def workload(self) -> Workload:
        """By hooks."""
        return Workload(self.model, self.trained)

    def optimizer_state(self) -> bytes:
        """In the form of `torch.save`."""
        if not self.optimizer.state:
            return b""
        buffer = io.BytesIO()
        torch.save(self.optimizer.state_dict(), buffer)
        return buffer.getvalue()

    def load_optimizer_state(self, saved: bytes) -> None:
        """Of another rank."""
        self.optimizer.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True))

    def packed(self, values: Any) -> bytes:
        """Plain data and tensors, in the form of `torch.save`."""
        buffer = io.BytesIO()
        torch.save(values, buffer)
        return buffer.getvalue()

    def unpacked(self, data: bytes) -> Any:
        """What another rank has `packed`. UsageError: it is more than that."""
        try:
            return torch.load(io.BytesIO(data), weights_only=True)
        except pickle.UnpicklingError as error:
            raise UsageError(
                f"what hk.extra_state registers on other ranks is no plain data: {error}\n"
                "hint: ranks that join take numbers, texts, tensors, and lists and dictionaries of them"
            ) from None

    def rates_of_groups(self) -> list[dict[str, Any]]:
        """What schedulers change: the numbers of the optimizer's groups."""
        groups = self.optimizer.state_dict()["param_groups"]
        return [{name: value for name, value in group.items() if name != "params"} for group in groups]

    def set_rates_of_groups(self, rates: Sequence[Mapping[str, Any]]) -> None:
        """Of another rank."""
        for group, given in zip(self.optimizer.param_groups, rates, strict=True):
            group.update(given)

    def before_training_forward(self, call: Callable[[], None]) -> None:
        """Of the whole model, where gradients are wanted."""

        def entering(module: torch.nn.Module, _inputs: object) -> None:
            if module.training and torch.is_grad_enabled():
                call()

        self.model.register_forward_pre_hook(entering, prepend=True)

    def divide(self, buckets: Sequence[LoadedBucket], ranges: Mapping[str, Sequence[Range]]) -> None:
        """`Division` does it."""
        views = {
            name: (self.trained[name], view)
            for bucket in buckets
            for name, view in zip(bucket.names, bucket.views, strict=True)
            if name in ranges
        }
        self.division.divide(views, ranges)

    def divided(self, bucket: LoadedBucket) -> None:
        """Their `grad` is a `DividedGradient`."""
        for name in bucket.names:
            self.division.reduced(self.trained[name])

    def shards(self) -> list[Shard]:
        """Of this rank's parts."""
        return self.division.shards()

    def undivide(self, state: Mapping[str, State]) -> None:
        """As before."""
        self.division.undivide(state)

    def array(self, memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """A tensor over the memory."""
        return array(memory, start, dtype, shape)

    def adopt(self, name: str, view: torch.Tensor) -> None:
        """After `grad = None`, or if autograd made a sparse gradient."""
        parameter = self.trained[name]
        gradient = parameter.grad
        if gradient is view:
            return
        if isinstance(gradient, DividedGradient):
            raise UsageError(
                f"backward adds to a gradient of `{name}` that its owners have reduced\n"
                "hint: optimizer.zero_grad() before it, and no_sync() for all but the last backward of a step"
            )
        if gradient is None:
            view.zero_()
        else:
            gradient = gradient.to_dense() if gradient.is_sparse else gradient
            _check_type(name, view, gradient)
            view.copy_(gradient)
        parameter.grad = view

    def zero(self, bucket: LoadedBucket) -> None:
        """In one go."""
        bucket.elements.zero_()
        for name, view in zip(bucket.names, bucket.views, strict=True):
            parameter = self.trained[name]
            if parameter.grad is not view:
                parameter.grad = view

    def add(self, name: str, view: torch.Tensor) -> None:
        """After `grad = None` while gradients are summed over iterations."""
        parameter = self.trained[name]
        gradient = parameter.grad
        if gradient is view:
            return
        if gradient is not None:
            gradient = gradient.to_dense() if gradient.is_sparse else gradient
            _check_type(name, view, gradient)
            view.add_(gradient)
        parameter.grad = view

    def show(self, bucket: LoadedBucket) -> None:
        """Without touching memory."""
        for name, view in zip(bucket.names, bucket.views, strict=True):
            self.trained[name].grad = view

    def drop(self, name: str) -> None:
        """Optimizers skip a parameter whose gradient is None."""
        self.trained[name].grad = None

    def rows(self, name: str, factor: float) -> tuple[Numbers, RowBytes]:
        """Of a sparse gradient what it has, added up by number; of a dense one the rows that are not zero."""
        parameter = self.trained[name]
        gradient = parameter.grad
        row_elements = parameter.shape[1:].numel()
        if gradient is None:
            return np.empty(0, np.int64), np.empty((0, row_elements * parameter.element_size()), np.uint8)
        _check_type(name, parameter, gradient)
        if gradient.is_sparse and gradient.sparse_dim() > 1:
            gradient = gradient.to_dense()
        if gradient.is_sparse:
            own = gradient.coalesce()
            numbers, rows = own.indices()[0], own.values()
        else:
            numbers = gradient.reshape(len(gradient), -1).any(1).nonzero().flatten()
            rows = gradient[numbers]
        part = (rows * factor).reshape(len(numbers), row_elements).contiguous()
        return numbers.numpy(), part.view(torch.uint8).numpy()

    def set_rows(self, name: str, numbers: Numbers, rows: RowBytes) -> None:
        """A parameter that a sparse and a dense layer share has a dense gradient."""
        parameter = self.trained[name]
        places = torch.from_numpy(numbers)
        values = torch.from_numpy(rows).view(parameter.dtype).view(len(numbers), *parameter.shape[1:])
        if parameter.grad is not None and not parameter.grad.is_sparse:
            parameter.grad.zero_()
            parameter.grad[places] = values
        else:
            parameter.grad = torch.sparse_coo_tensor(
                places.unsqueeze(0), values, parameter.shape, is_coalesced=True, check_invariants=False
            )

    def check_in_place(self, buckets: Sequence[LoadedBucket]) -> None:
        """Conversions that move gradients (`model.double()`) would leave the buckets behind."""
        for bucket in buckets:
            begin, end = bucket.memory.address, bucket.memory.address + len(bucket.memory)
            for name, view in zip(bucket.names, bucket.views, strict=True):
                if view.numel() and not begin <= view.data_ptr() < end:
                    raise UsageError(
                        f"the gradient of `{name}` was moved out of its bucket, as `model.double()` or `model.to(…)` does\n"
                        "hint: change the model before `distribute`"
                    )

    def hold_parameters(self, buckets: Sequence[LoadedBucket]) -> None:
        """Make `parameter.data` the view."""
        with torch.no_grad():
            for bucket in buckets:
                for name, view in zip(bucket.names, bucket.views, strict=True):
                    view.copy_(self.trained[name])
                    self.trained[name].data = view

    def state(self) -> list[StateBytes]:
        """Views, but for tensors with gaps."""
        return [_bytes(each.detach().contiguous()) for each in self._state()]

    @contextmanager
    def filling(self) -> Iterator[list[StateBytes]]:
        """In place, but for tensors with gaps."""
        state = [each.detach() for each in self._state()]
        whole = [each.contiguous() for each in state]
        yield [_bytes(each) for each in whole]
        for each, filled in zip(state, whole, strict=True):
            if filled.data_ptr() != each.data_ptr():
                each.copy_(filled)

    def _state(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]


def _bytes(tensor: torch.Tensor) -> StateBytes:
    """Of a contiguous one."""
    view: StateBytes = tensor.reshape(-1).view(torch.uint8).numpy()
    return view


def array(memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    """A tensor over `memory` from byte `start` on."""
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(tuple(shape), dtype=TORCH_DTYPES[dtype])
    whole = torch.frombuffer(memory, dtype=TORCH_DTYPES[dtype], count=count, offset=start)
    return whole.view(tuple(shape))


def _trained(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters whose gradients are communicated, in registration order; shared ones once."""
    found = {name: each for name, each in model.named_parameters() if each.requires_grad}
    if not found:
        raise UsageError("the model has no parameters that require gradients: there is nothing to distribute")
    for name, each in found.items():
        if each.device.type != "cpu":
            raise UsageError(f"parameter `{name}` is on {each.device}: Hocket moves gradients in CPU memory")
        if each.dtype not in DTYPES:
            raise UsageError(
                f"parameter `{name}` has dtype {each.dtype}: known are {', '.join(map(str, DTYPES))}"
            )
    return found


def _steps_some(optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.nn.Parameter]) -> None:
    """UsageError: it steps none of them, as when the model was copied or its parameters replaced after the optimizer was made.

    Some only is well: others may have an optimizer of their own.
    """
    own = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if own.isdisjoint(map(id, trained.values())):
        raise UsageError(
            "the optimizer steps no parameter of the model: it has another model's, or those before a replacement\n"
            "hint: make the optimizer from `model.parameters()` just before hk.distribute(model, optimizer)"
        )


def _parts(model: torch.nn.Module, trained: dict[str, torch.nn.Parameter]) -> Iterator[Parameter]:
    kinds: tuple[tuple[Literal["parameter", "buffer"], Iterator[tuple[str, torch.Tensor]]], ...] = (
        ("parameter", model.named_parameters()),
        ("buffer", model.named_buffers()),
    )
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    sparse = {id(each.weight) for each in model.modules() if isinstance(each, embeddings) and each.sparse}
    for kind, named in kinds:
        for name, each in named:
            dtype = DTYPES.get(each.dtype, str(each.dtype))
            own = kind == "parameter" and name in trained
            yield Parameter(
                kind=kind,
                name=name,
                shape=tuple(each.shape),
                dtype=dtype,
                trained=own,
                sparse=own and id(each) in sparse,
            )


def _check_type(name: str, view: torch.Tensor, gradient: Any) -> None:
    if gradient.dtype != view.dtype or gradient.shape != view.shape or gradient.device != view.device:
        raise UsageError(
            f"the gradient of `{name}` is {list(gradient.shape)} of {gradient.dtype} on "
            f"{gradient.device}, it was {list(view.shape)} of {view.dtype} on {view.device} when the model was "
            "distributed\nhint: change the model before `distribute`"
        )

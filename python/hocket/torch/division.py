"""Division of an optimizer: it steps the parts of parameters that this rank owns. Other ranks step the rest.

For one step, each parameter of the optimizer's groups is replaced by flat views of the elements that this rank updates. State
is kept for these views alone. Everything else that uses the groups, such as a scheduler, sees the parameters themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.divided_gradient import DividedGradient
from hocket.torch.hyperparameters import ELEMENTWISE
from hocket.torch.packing import packed, unpacked
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.shards import Range, Shard, State

STEPPED = ELEMENTWISE | {"Adagrad"}
"""Optimizers of `torch.optim` that update each element by itself."""


@dataclass(frozen=True)
class Part:
    """Range of elements that this rank updates, as a parameter of its own, and their gradient."""

    start: int
    stop: int
    alone: bool
    value: torch.nn.Parameter
    gradient: torch.Tensor


@dataclass(frozen=True)
class Divided:
    """Parameter, its gradient's view in the bucket, the gradient's placeholder, and the parts that this rank updates."""

    name: str
    parameter: torch.nn.Parameter
    view: torch.Tensor
    gradient: DividedGradient
    parts: tuple[Part, ...]


class Division:
    """Division of one optimizer's steps; nothing is divided at first."""

    def __init__(self, optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.nn.Parameter]) -> None:
        """Leave the optimizer as it is until some of the `trained` parameters are divided."""
        self._optimizer, self._trained = optimizer, trained
        self._divided: dict[int, Divided] = {}
        self._counted: Callable[[str, int], bool] | None = None
        self._groups: list[tuple[dict[str, Any], list[torch.Tensor]]] = []
        """Groups of the optimizer, and their parameters, while it steps parts."""
        self._installed = self._collecting = False

    def __bool__(self) -> bool:
        """Return whether parameters are divided."""
        return bool(self._divided)

    def install(self) -> None:
        """Replace the optimizer's `step`; gates, which defer steps, replace it after this."""
        if self._installed:
            return
        self._installed = True
        optimizer = self._optimizer
        optimizer.step = optimizers.wrapped_step(optimizer, self._on_step)  # type: ignore[method-assign]
        optimizer.register_state_dict_pre_hook(lambda _: self._check_whole())
        optimizer.register_load_state_dict_post_hook(lambda _: self._cut())

    def divide(self, buckets: Sequence[LoadedBucket], ranges: Mapping[str, Sequence[Range]]) -> None:
        """Divide contiguous parameters."""
        _check(self._optimizer, {name: self._trained[name] for name in ranges})
        self.install()
        views = {
            name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)
        }
        for name, own in ranges.items():
            parameter, view = self._trained[name], views[name]
            stands: DividedGradient = torch.Tensor._make_subclass(DividedGradient, view)
            stands.of, stands.parameter, stands.whole = name, parameter, view
            parts = tuple(_part(parameter, view, each) for each in own)
            self._divided[id(parameter)] = Divided(name, parameter, view, stands, parts)
        self._cut()

    def add(self, ranges: Mapping[str, Sequence[Range]]) -> None:
        """Step these ranges, too."""
        for name, own in ranges.items():
            divided = self._divided[id(self._trained[name])]
            parts = (*divided.parts, *(_part(divided.parameter, divided.view, each) for each in own))
            self._divided[id(divided.parameter)] = replace(divided, parts=parts)

    def put(self, shards: Iterable[Shard]) -> None:
        """Set optimizer state."""
        for each in shards:
            found = self._divided.get(id(self._trained[each.name]))
            if found is None:
                parameter = self._trained[each.name]
                _put(self._optimizer.state[parameter], parameter, 0, each)
                continue
            for part in found.parts:
                if max(part.start, each.start) < min(part.stop, each.stop):
                    _put(self._optimizer.state[part.value], part.value, part.start, each)

    def whole(self, shards: Iterable[Shard]) -> dict[str, State]:
        """Return the state of whole parameters."""
        found: dict[str, State] = {}
        for each in shards:
            state = found.setdefault(each.name, State())
            elements = self._trained[each.name].numel()
            for key, array in each.state.arrays.items():
                if key not in state.arrays:
                    state.arrays[key] = torch.zeros(elements, dtype=array.dtype, device=array.device)
                state.arrays[key][each.start : each.stop] = array.reshape(-1)
            state.scalars.update(each.state.scalars)
        return found

    def forget(self) -> None:
        """Step whole parameters again, also where called within a step."""
        self._put_groups_back()
        for each in self._divided.values():
            if each.parameter.grad is each.gradient:
                each.parameter.grad = each.view
            for part in each.parts:
                self._optimizer.state.pop(part.value, None)
        self._divided = {}

    def packed(self, shards: Iterable[Shard]) -> bytes:
        """Return shards as bytes."""
        return packed(
            [[each.name, each.start, each.stop, each.state.arrays, each.state.scalars] for each in shards]
        )

    def unpacked(self, data: bytes) -> list[Shard]:
        """Return shards that another rank has packed, on the host."""
        return [
            Shard(name, start, stop, State(arrays, scalars))
            for name, start, stop, arrays, scalars in unpacked(data)
        ]

    def count(self, counted: Callable[[str, int], bool] | None) -> None:
        """Count ranges in norms where `counted` says so."""
        self._counted = counted

    def undivide(self, states: Mapping[str, State]) -> None:
        """Make parameters and gradients whole again, with these states."""
        for each in self._divided.values():
            if each.parameter.grad is each.gradient:
                each.parameter.grad = each.view
        self._optimizer.state = self._whole(states)
        self._divided = {}

    def reduced(self, bucket: LoadedBucket) -> None:
        """Replace divided gradients with their placeholders: this rank has the means in its own parts alone."""
        for name in bucket.names:
            found = self._divided.get(id(self._trained[name]))
            if found is not None and found.parameter.grad is not None:
                found.parameter.grad = found.gradient

    def shards(self, *, undivided: bool = False) -> list[Shard]:
        """Return the state of each part that has some."""
        states = self._optimizer.state
        found = [
            Shard(each.name, part.start, part.stop, _state_of(each.name, part.value, state))
            for each in self._divided.values()
            for part in each.parts
            if (state := states.get(part.value))
        ]
        if undivided:
            found += [
                Shard(name, 0, parameter.numel(), _state_of(name, parameter, state))
                for name, parameter in self._trained.items()
                if not self.is_divided(parameter) and (state := states.get(parameter))
            ]
        return found

    def updated(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors that a step updates in place of a parameter of the optimizer's groups.

        UsageError: the parameter is divided, and its gradient was not reduced.
        """
        found = self._divided.get(id(parameter))
        if found is None:
            return [parameter]
        gradient = parameter.grad
        zeros = gradient is found.view and not bool(found.view.any())
        if gradient is not None and gradient is not found.gradient and not zeros:
            raise UsageError(
                f"step() with a gradient of `{found.name}` that its owners did not reduce\n"
                "hint: the last backward before step() must be outside no_sync(), and `grad` may not be replaced"
            )
        for part in found.parts:
            part.value.grad = None if gradient is None else part.gradient
        return [part.value for part in found.parts]

    def gradients(self) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """Return gradients of divided parameters' parts: those that this rank counts for all, those that all ranks have, and those
        that another rank counts."""
        parts = [
            (part, self._counted is None or self._counted(each.name, part.start))
            for each in self._divided.values()
            for part in each.parts
            if each.parameter.grad is each.gradient
        ]
        return (
            [part.gradient for part, counts in parts if part.alone and counts],
            [part.gradient for part, _ in parts if not part.alone],
            [part.gradient for part, counts in parts if part.alone and not counts],
        )

    def parts(self) -> set[int]:
        """Return the `id`s of the parameters that take the places of divided ones in a step."""
        return {id(part.value) for each in self._divided.values() for part in each.parts}

    def is_divided(self, parameter: torch.Tensor) -> bool:
        """Return whether owners update some of the parameter."""
        return id(parameter) in self._divided

    def state_dict(self, states: Mapping[str, State]) -> dict[str, Any]:
        """Return the optimizer's state dict, with these states of divided parameters."""
        kept, self._collecting = self._optimizer.state, True
        try:
            self._optimizer.state = self._whole(states)
            return self._optimizer.state_dict()
        finally:
            self._optimizer.state, self._collecting = kept, False

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if not self._divided:
            return plain(*args, **kwargs)
        loss = optimizers.of_closure(args, kwargs)
        self._groups = [(group, group["params"]) for group in self._optimizer.param_groups]
        try:
            for group, parameters in self._groups:
                group["params"] = [part for each in parameters for part in self.updated(each)]
            plain()
        finally:
            self._put_groups_back()
        return loss

    def _put_groups_back(self) -> None:
        for group, parameters in self._groups:
            group["params"] = parameters
        self._groups = []

    def _cut(self) -> None:
        """Divide the state of whole parameters among their parts."""
        states = self._optimizer.state
        for each in self._divided.values():
            whole = states.pop(each.parameter, None)
            if not whole:
                continue
            for part in each.parts:
                states[part.value] = {
                    key: _cut(each.name, key, value, each.parameter, part) for key, value in whole.items()
                }

    def _whole(self, states: Mapping[str, State]) -> defaultdict[torch.Tensor, Any]:
        parts = self.parts()
        kept = {key: value for key, value in self._optimizer.state.items() if id(key) not in parts}
        for each in self._divided.values():
            state = states.get(each.name)
            if state is not None:
                arrays = {key: flat.clone().view(each.parameter.shape) for key, flat in state.arrays.items()}
                kept[each.parameter] = arrays | {key: _scalar(told) for key, told in state.scalars.items()}
        return defaultdict(dict, kept)

    def _check_whole(self) -> None:
        if self._divided and not self._collecting:
            raise UsageError(
                "the optimizer's state is divided among the ranks that own parts of parameters\n"
                "hint: hk.optimizer_state(model), on all ranks, gives what state_dict() would"
            )


@torch.no_grad()
def clip_divided(
    parameters: Iterable[torch.Tensor],
    division: Division,
    everybodys: Callable[[Callable[[], float]], Sequence[float]],
    max_norm: float,
    norm_type: float,
) -> torch.Tensor:
    """Clip these parameters' gradients like `clip_grad_norm_`, equally on all ranks, which all call it.

    `everybodys`: gathers one number of each rank, which it asks for again where a rank is lost. The total norm is the norm of the
    ranks' norms and of the norm of gradients that all ranks have.
    """
    _, replicated, _ = division.gradients()
    replicated += [
        each.grad for each in parameters if each.grad is not None and not division.is_divided(each)
    ]
    norms = [*everybodys(lambda: _norm(division.gradients()[0], norm_type)), _norm(replicated, norm_type)]
    total = torch.linalg.vector_norm(torch.tensor(norms, dtype=torch.float64, device="cpu"), norm_type)
    share = (max_norm / (total + 1e-6)).clamp(max=1.0)
    counted, _, others = division.gradients()
    for each in (*counted, *others, *replicated):
        each.mul_(share.to(each.dtype))
    norm: torch.Tensor = total.to(torch.get_default_dtype())
    return norm


def _norm(gradients: Sequence[torch.Tensor], norm_type: float) -> float:
    norms = [float(torch.linalg.vector_norm(each, norm_type)) for each in gradients]
    return (
        float(torch.linalg.vector_norm(torch.tensor(norms, dtype=torch.float64, device="cpu"), norm_type))
        if norms
        else 0.0
    )


def _check(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> None:
    _check_optimizer(optimizer)
    names = {id(parameter): name for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        if parameter.is_complex():
            raise UsageError(
                f"parameter `{name}` is of {parameter.dtype}: owners cannot step parts of complex numbers\n"
                "hint: use a plan in which all ranks update"
            )
    missing = optimizers.missing(optimizer, names)
    if missing is not None:
        raise UsageError(
            f"parameter `{names[missing]}` is not in the optimizer, so its owners would not know how to update it\n"
            "hint: give the optimizer all parameters, or use a plan in which all ranks update"
        )


def _check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    kind = type(optimizer)
    if kind.__name__ not in STEPPED or getattr(torch.optim, kind.__name__, None) is not kind:
        raise UsageError(
            f"owners cannot step parts of parameters with {kind.__name__}: it is not known to update each element by itself\n"
            f"hint: use a plan in which all ranks update, or one of {', '.join(sorted(STEPPED))} of torch.optim"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise UsageError(
            f"owners cannot step parts of parameters with a differentiable {kind.__name__}: its step is part of a graph\n"
            "hint: use a plan in which all ranks update"
        )


def _part(parameter: torch.nn.Parameter, view: torch.Tensor, own: Range) -> Part:
    # A part of a scalar is a scalar: its state has the shape of the whole parameter's state.
    shape = (own.stop - own.start,) if parameter.dim() else ()
    value = parameter.detach().view(-1)[own.start : own.stop].view(shape)
    gradient = view.view(-1)[own.start : own.stop].view(shape)
    return Part(own.start, own.stop, own.alone, torch.nn.Parameter(value), gradient)


def _put(state: dict[str, Any], value: torch.Tensor, start: int, shard: Shard) -> None:
    """Set a part's state, or a whole parameter's, from where a shard has it; the part starts at that element."""
    first, last = max(start, shard.start), min(start + value.numel(), shard.stop)
    for key, array in shard.state.arrays.items():
        if key not in state:
            state[key] = torch.zeros_like(value, dtype=array.dtype, memory_format=torch.contiguous_format)
        given = array.reshape(-1)[first - shard.start : last - shard.start]
        state[key].view(-1)[first - start : last - start] = given.to(value.device)
    state.update({key: _scalar(told) for key, told in shard.state.scalars.items()})


def _state_of(name: str, part: torch.Tensor, state: Mapping[str, Any]) -> State:
    found = State()
    for key, value in state.items():
        if isinstance(value, torch.Tensor) and value.dim():
            _check_state(name, key, value, part)
            found.arrays[key] = value
        elif isinstance(value, torch.Tensor):
            found.scalars[key] = {"dtype": str(value.dtype).removeprefix("torch."), "value": value.item()}
        else:
            found.scalars[key] = value
    return found


def _cut(name: str, key: str, value: Any, parameter: torch.Tensor, part: Part) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if not value.dim():
        return value.clone()
    _check_state(name, key, value, parameter)
    return value.reshape(-1)[part.start : part.stop].clone()


def _check_state(name: str, key: str, value: torch.Tensor, like: torch.Tensor) -> None:
    if value.shape != like.shape or value.dtype != like.dtype:
        raise UsageError(
            f"the optimizer's `{key}` of `{name}` is {list(value.shape)} of {value.dtype}, its values are {list(like.shape)} of "
            f"{like.dtype}: owners cannot divide it\nhint: use a plan in which all ranks update"
        )


def _scalar(told: Any) -> Any:
    """Return a state without elements from its record by `_state_of`."""
    if isinstance(told, dict):
        return torch.tensor(told["value"], dtype=getattr(torch, told["dtype"]), device="cpu")
    return told

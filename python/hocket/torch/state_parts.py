"""The state of a model and its optimizer in parts, for a rank that joins while the others train (`training.memory.state_parts`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

import torch
from msgspec.structs import replace

from hocket.artefacts.plan import Outer
from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.framework import Torch
from hocket.torch.lent import bytes_of
from hocket.torch.local import sgd
from hocket.training.memory.state_parts import PIECE_BYTES, Described, Number, Part, Rates, StateBytes, Tensor


class TorchParts:
    """Trained parameters in their order, then pieces of the others."""

    def __init__(self, framework: Torch) -> None:
        """Take a model and its optimizer."""
        model = framework.model
        self._framework = framework
        self._trained = list(framework.trained.values())
        self._followed: torch.optim.SGD | None = None
        """Outer optimizer that steps what comes from ranks that step alone."""
        self._names = list(framework.trained)
        self._numbers = {name: part for part, name in enumerate(self._names)}
        own = {id(each) for each in self._trained}
        self._pieces = [
            (each, start, min(start + PIECE_BYTES, each.nbytes))
            for each in model.parameters()
            if id(each) not in own
            for start in range(0, each.nbytes, PIECE_BYTES)
        ]
        self._versions: list[int] = []
        self._moves: Counter[str] = Counter()
        self.arrays = len(list(model.parameters()))

    @property
    def outer(self) -> Outer | None:
        """Outer optimizer that steps the parts; None: the script's does."""
        made = self._framework.local.outer
        if made is None:
            return None
        (group,) = made.param_groups
        return Outer(rate=group["lr"], momentum=group["momentum"], nesterov=group["nesterov"])

    def follow(self, outer: Outer | None) -> None:
        """Expect parts that are stepped by this outer optimizer, or by the script's."""
        self._followed = None if outer is None else sgd(self._trained, outer)

    def hand_over(self) -> None:
        """Let the session's anchor go on with the outer optimizer's state that has come."""
        if self._followed is not None:
            self._framework.local.go_on_from(self._followed)
            self._followed = None

    @property
    def _values(self) -> Sequence[torch.Tensor]:
        """Values of the trained parameters that all ranks have alike: the anchor's, where ranks step alone."""
        anchor = self._framework.local.values()
        return [anchor[name] for name in self._names] if anchor else self._trained

    @property
    def _stepper(self) -> torch.optim.Optimizer:
        """Optimizer that steps these."""
        return self._framework.local.outer or self._followed or self._framework.optimizer

    @property
    def _apart(self) -> bool:
        """True if that is not the script's."""
        return self._stepper is not self._framework.optimizer

    def parts(self) -> list[Part]:
        """Return all parts."""
        trained = [Part(self._size(at), True) for at in range(len(self._trained))]
        return [*trained, *(Part(stop - start, False) for _, start, stop in self._pieces)]

    def _size(self, part: int) -> int:
        value = self._values[part]
        held = list(self._stepper.state.get(value, {}).values())
        if self._apart:
            held += self._framework.optimizer.state.get(self._trained[part], {}).values()
        return value.nbytes + sum(each.nbytes for each in held if isinstance(each, torch.Tensor))

    def unfit(self) -> str | None:
        """Return why the state cannot be given in parts, or None."""
        for each in self._framework.parameters():
            if each.sparse:
                return f"the gradient of `{each.name}` is sparse"
        if self._framework.division:
            return "owners update parameters, and each rank has the optimizer's state of its parts alone"
        known = {id(each) for each in self._trained}
        optimizer = self._framework.optimizer
        for parameter, state in optimizer.state.items():
            if id(parameter) not in known:
                return "the optimizer keeps state of other parameters than the model trains"
            for name, value in state.items():
                if not isinstance(value, (torch.Tensor, *get_args(Number))):
                    return f"the optimizer keeps `{name}`, which is neither a tensor nor a number"
        for group in optimizer.param_groups:
            for name, value in group.items():
                if name != "params" and not _is_plain(value):
                    return f"the optimizer's option `{name}` is no number"
        return None

    def give(self, part: int) -> tuple[Described, list[StateBytes]]:
        """Return a part as it is now."""
        if part >= len(self._trained):
            parameter, start, stop = self._pieces[part - len(self._trained)]
            piece = parameter.detach().reshape(-1).view(torch.uint8)[start:stop]
            return Described(value_bytes=stop - start), [_bytes(piece)]
        value = self._values[part]
        tensors, numbers, held = _described(self._stepper, value)
        found = Described(value_bytes=value.nbytes, tensors=tensors, numbers=numbers)
        if self._apart:
            tensors, numbers, own = _described(self._framework.optimizer, self._trained[part])
            found = replace(found, own_tensors=tensors, own_numbers=numbers)
            held += own
        return found, [_bytes(value), *held]

    def alike(self, part: int) -> list[StateBytes]:
        """Return those bytes of a part that all ranks have alike."""
        described, arrays = self.give(part)
        return arrays[: 1 + len(described.tensors)]

    def gradients(self, parts: Sequence[int]) -> list[tuple[int, StateBytes]]:
        """Return the gradients of the last step, or of the one that is about to be made."""
        if self._apart:
            came = self._framework.local.came
            given = ((part, came.get(self._names[part])) for part in parts if self._moved(part) == 1)
        else:
            given = ((part, self._trained[part].grad) for part in parts)
        return [(part, _bytes(gradient)) for part, gradient in given if gradient is not None]

    def sums(self, sums: Mapping[str, Any], parts: Collection[int]) -> list[tuple[int, StateBytes]]:
        """Return sums of these parts' gradients."""
        if self._apart or self._framework.device is not None:
            return []
        given = ((self._numbers.get(name), gradient) for name, gradient in sums.items())
        return [(part, _bytes(gradient)) for part, gradient in given if part is not None and part in parts]

    def before_step(self, call: Callable[[], None]) -> None:
        """Call `call` before each step of the script's optimizer."""
        self._framework.on_step(call, before=True)

    def _moved(self, part: int) -> int:
        """Return how often the anchor has changed since `stepped`."""
        name = self._names[part]
        return self._framework.local.moves[name] - self._moves[name]

    def changed(self) -> list[int]:
        """Return parts that something else than the optimizer has changed; changes through `.data` do not show."""
        pairs = zip(self._parameters(), self._versions, strict=False)
        found = [part for part, (parameter, version) in enumerate(pairs) if parameter._version != version]
        if not self._apart:
            return found
        moved = [part for part in range(len(self._trained)) if self._moved(part) > 1]
        return [*moved, *(part for part in found if part >= len(self._trained))]

    def _parameters(self) -> list[torch.Tensor]:
        """Return the parameter of each part."""
        return [*self._trained, *(parameter for parameter, _, _ in self._pieces)]

    def stepped(self) -> None:
        """Note that the optimizer has stepped."""
        self._versions = [each._version for each in self._parameters()]
        self._moves = self._framework.local.moves.copy()

    def rates(self) -> list[dict[str, Any]]:
        """Return the numbers of the groups of the optimizer that steps parts."""
        return optimizers.rates_of(self._stepper)

    def take(self, part: int, described: Described, data: memoryview) -> None:
        """Set a part. UsageError: it is of another model."""
        if part >= len(self._trained):
            parameter, start, stop = self._pieces[part - len(self._trained)]
            _check_size("a parameter that is not trained", stop - start, len(data))
            with torch.no_grad():
                whole = parameter.detach().contiguous()
                whole.view(-1).view(torch.uint8)[start:stop] = torch.frombuffer(data, dtype=torch.uint8)
                if whole.data_ptr() != parameter.data_ptr():
                    parameter.copy_(whole)
            return
        parameter = self._trained[part]
        _check_size(f"parameter `{self._names[part]}`", parameter.nbytes, described.value_bytes)
        with torch.no_grad():
            parameter.copy_(_over(data[: described.value_bytes], parameter.dtype, parameter.shape))
        rest = data[described.value_bytes :]
        rest = _take_state(self._stepper, parameter, described.tensors, described.numbers, rest)
        if self._apart:
            own = self._framework.optimizer
            _take_state(own, parameter, described.own_tensors, described.own_numbers, rest)

    def step(self, rates: Rates, gradients: Sequence[tuple[int, memoryview]]) -> None:
        """Step these parts alone: optimizers pass over parameters without a gradient."""
        # JSON has lists where options are tuples.
        stepper = self._stepper
        optimizers.set_rates_of(
            stepper,
            [
                {name: tuple(value) if isinstance(value, list) else value for name, value in numbers.items()}
                for numbers in rates
            ],
        )
        for each in optimizers.all_parameters(stepper):
            each.grad = None
        for part, data in gradients:
            parameter = self._trained[part]
            gradient = _over(data, parameter.dtype, parameter.shape)
            if gradient.stride() != parameter.stride() or gradient.device != parameter.device:
                # In the parameter's own memory format, as autograd makes it: sums of rows depend on it.
                gradient = torch.empty_like(parameter).copy_(gradient)
            parameter.grad = gradient
        stepper.step()
        for part, _ in gradients:
            self._trained[part].grad = None


def _described(
    optimizer: torch.optim.Optimizer, parameter: torch.Tensor
) -> tuple[tuple[Tensor, ...], dict[str, Number], list[StateBytes]]:
    """Return an optimizer's state of a parameter: its tensors, the rest of it, and the tensors' bytes."""
    tensors, numbers, arrays = [], {}, []
    for name, value in optimizer.state.get(parameter, {}).items():
        if isinstance(value, torch.Tensor):
            beside = value.device == parameter.device
            tensors.append(Tensor(name, str(value.dtype), tuple(value.shape), beside))
            arrays.append(_bytes(value))
        else:
            numbers[name] = value
    return tuple(tensors), numbers, arrays


def _take_state(
    optimizer: torch.optim.Optimizer,
    parameter: torch.nn.Parameter,
    tensors: Sequence[Tensor],
    numbers: Mapping[str, Number],
    data: memoryview,
) -> memoryview:
    """Set an optimizer's state of a parameter from the first bytes of `data`; return the rest."""
    state: dict[str, Any] = dict(numbers)
    for each in tensors:
        dtype = getattr(torch, each.dtype.removeprefix("torch."))
        size = torch.Size(each.shape).numel() * dtype.itemsize
        device = parameter.device if each.beside else torch.device("cpu")
        own = (
            torch.empty_like(parameter, dtype=dtype, device=device)
            if tuple(parameter.shape) == each.shape
            else torch.empty(each.shape, dtype=dtype, device=device)
        )
        own.copy_(_over(data[:size], dtype, each.shape))
        state[each.name] = own.detach()
        data = data[size:]
    if state:
        optimizer.state[parameter] = state
    else:
        optimizer.state.pop(parameter, None)
    return data


def _bytes(tensor: torch.Tensor) -> StateBytes:
    """Return the bytes in the order of elements: a view of a contiguous tensor on the CPU, else a copy."""
    return bytes_of(tensor.detach().contiguous().cpu())


def _over(data: memoryview, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    if not len(data):
        return torch.empty(tuple(shape), dtype=dtype, device="cpu")
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).view(tuple(shape))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, get_args(Number))


def _check_size(what: str, own: int, given: int) -> None:
    if own != given:
        raise UsageError(f"{what} has {own} bytes here and {given} in the job: the models differ")

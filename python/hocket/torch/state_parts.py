"""The state of a model and its optimizer in parts, for a rank that joins while the others train (`training.memory.state_parts`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch

from hocket.errors import UsageError
from hocket.torch import optimizers
from hocket.torch.framework import Torch
from hocket.torch.lent import bytes_of
from hocket.training.memory.state_parts import PIECE_BYTES, Described, Number, Part, Rates, StateBytes, Tensor


class TorchParts:
    """Trained parameters in their order, then pieces of the others."""

    def __init__(self, framework: Torch) -> None:
        """Take a model and its optimizer."""
        model = framework.model
        self._framework = framework
        self._optimizer = framework.optimizer
        self._trained = list(framework.trained.values())
        self._names = list(framework.trained)
        own = {id(each) for each in self._trained}
        self._pieces = [
            (each, start, min(start + PIECE_BYTES, each.nbytes))
            for each in model.parameters()
            if id(each) not in own
            for start in range(0, each.nbytes, PIECE_BYTES)
        ]
        self._versions: list[int] = []
        self.arrays = len(list(model.parameters()))

    def parts(self) -> list[Part]:
        """Return all parts."""
        trained = [Part(self._size(each), True) for each in self._trained]
        return [*trained, *(Part(stop - start, False) for _, start, stop in self._pieces)]

    def _size(self, parameter: torch.nn.Parameter) -> int:
        state = self._optimizer.state.get(parameter, {}).values()
        return parameter.nbytes + sum(each.nbytes for each in state if isinstance(each, torch.Tensor))

    def unfit(self) -> str | None:
        """Return why the state cannot be given in parts, or None."""
        known = {id(each) for each in self._trained}
        for parameter, state in self._optimizer.state.items():
            if id(parameter) not in known:
                return "the optimizer keeps state of other parameters than the model trains"
            for name, value in state.items():
                if not isinstance(value, (torch.Tensor, *get_args(Number))):
                    return f"the optimizer keeps `{name}`, which is neither a tensor nor a number"
        for group in self._optimizer.param_groups:
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
        parameter = self._trained[part]
        arrays, tensors, numbers = [_bytes(parameter)], [], {}
        for name, value in self._optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                beside = value.device == parameter.device
                tensors.append(Tensor(name, str(value.dtype), tuple(value.shape), beside))
                arrays.append(_bytes(value))
            else:
                numbers[name] = value
        return Described(value_bytes=len(arrays[0]), tensors=tuple(tensors), numbers=numbers), arrays

    def gradients(self, parts: Sequence[int]) -> list[tuple[int, StateBytes]]:
        """Return the gradients of the last step."""
        given = ((part, self._trained[part].grad) for part in parts)
        return [(part, _bytes(gradient)) for part, gradient in given if gradient is not None]

    def changed(self) -> list[int]:
        """Return trained parts that something else than the optimizer has changed; changes through `.data` do not show."""
        pairs = zip(self._trained, self._versions, strict=False)
        return [part for part, (parameter, version) in enumerate(pairs) if parameter._version != version]

    def stepped(self) -> None:
        """Note that the optimizer has stepped."""
        self._versions = [each._version for each in self._trained]

    def rates(self) -> list[dict[str, Any]]:
        """Return the numbers of the optimizer's groups."""
        return self._framework.rates_of_groups()

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
        state: dict[str, Any] = dict(described.numbers)
        at = described.value_bytes
        for each in described.tensors:
            dtype = getattr(torch, each.dtype.removeprefix("torch."))
            size = torch.Size(each.shape).numel() * dtype.itemsize
            device = parameter.device if each.beside else torch.device("cpu")
            own = (
                torch.empty_like(parameter, dtype=dtype, device=device)
                if tuple(parameter.shape) == each.shape
                else torch.empty(each.shape, dtype=dtype, device=device)
            )
            own.copy_(_over(data[at : at + size], dtype, each.shape))
            state[each.name] = own.detach()
            at += size
        if state:
            self._optimizer.state[parameter] = state
        else:
            self._optimizer.state.pop(parameter, None)

    def step(self, rates: Rates, gradients: Sequence[tuple[int, memoryview]]) -> None:
        """Step these parts alone: optimizers pass over parameters without a gradient."""
        # JSON has lists where options are tuples.
        self._framework.set_rates_of_groups(
            [
                {name: tuple(value) if isinstance(value, list) else value for name, value in numbers.items()}
                for numbers in rates
            ]
        )
        for each in optimizers.all_parameters(self._optimizer):
            each.grad = None
        for part, data in gradients:
            parameter = self._trained[part]
            gradient = torch.empty_like(parameter)
            gradient.copy_(_over(data, parameter.dtype, parameter.shape))
            parameter.grad = gradient
        self._optimizer.step()
        for part, _ in gradients:
            self._trained[part].grad = None


def _bytes(tensor: torch.Tensor) -> StateBytes:
    """Return the bytes in the order of elements: a view of a contiguous tensor on the CPU, else a copy."""
    return bytes_of(tensor.detach().contiguous().cpu())


def _over(data: memoryview, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    if not len(data):
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).view(tuple(shape))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, get_args(Number))


def _check_size(what: str, own: int, given: int) -> None:
    if own != given:
        raise UsageError(f"{what} has {own} bytes here and {given} in the job: the models differ")

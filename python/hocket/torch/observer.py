"""Observation of the modules that use each parameter of a model in a forward; it knows nothing of gates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.overrides import TorchFunctionMode

# Calls and attributes that inspect a tensor without its values.
_METADATA = frozenset(
    ["shape", "dtype", "device", "ndim", "is_leaf", "requires_grad", "size", "dim", "numel", "is_complex"]
)


class Observer(TorchFunctionMode):
    """Observes the modules that use each parameter: the innermost module of the model at each call of torch."""

    def __init__(self, model: torch.nn.Module, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Start with nothing observed. `uses`: modules by a parameter's `id`; `ran`: modules that ran."""
        super().__init__()
        self.uses: dict[int, set[torch.nn.Module]] = {}
        self.ran = {model}
        # Calls within TorchScript are not observed.
        self._members = {each for each in model.modules() if not isinstance(each, torch.jit.ScriptModule)}
        self._running = [model]
        self._parameters = {id(each): each for each in parameters}
        # A view kept since the model was created counts as a use, of all parameters in that memory.
        self._at: dict[int, list[int]] = {}
        for key, parameter in self._parameters.items():
            self._at.setdefault(_address(parameter), []).append(key)
        self._at.pop(0, None)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Observe inside the context; modules outside the model, such as parametrisations, count as their caller."""
        entering = module_hooks.register_module_forward_pre_hook(self._enter)
        leaving = module_hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            with self:
                yield
        finally:
            entering.remove()
            leaving.remove()

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the parameters among the arguments."""
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name not in _METADATA:
            self._note(args)
            self._note(kwargs)
        return func(*args, **(kwargs or {}))

    def _note(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            for key in [id(value)] if id(value) in self._parameters else self._at.get(_address(value), ()):
                self.uses.setdefault(key, set()).add(self._running[-1])
        elif isinstance(value, (tuple, list)):
            for each in value:
                self._note(each)
        elif isinstance(value, dict):
            self._note(list(value.values()))

    def _enter(self, module: torch.nn.Module, _inputs: Any) -> None:
        if module in self._members:
            self.ran.add(module)
            self._running.append(module)

    def _leave(self, module: torch.nn.Module, *_: Any) -> None:
        if module in self._members:
            self._running.pop()


def _address(tensor: torch.Tensor) -> int:
    """Return the start of the tensor's storage; 0: none, as with sparse tensors and tensors of transformations."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0

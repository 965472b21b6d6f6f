"""Parts of a module that ranks compare: its parameters while it trains, and its first gradients before they are reduced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch

from hocket import _native
from hocket.training.memory.replicas import Piece
from hocket.training.step.first_gradients import UNKNOWN, ZERO


class Looks:
    """Digests of one module's parameters and gradients."""

    def __init__(
        self,
        model: torch.nn.Module,
        trained: Mapping[str, torch.nn.Parameter],
        anchored: Callable[[], Mapping[str, torch.Tensor]],
    ) -> None:
        """Take the model, whose parameters are listed at their first use, and those that are trained. `anchored`: values by name
        that ranks have equal in place of some parameters'."""
        self._model, self._trained, self._anchored = model, trained, anchored
        self._seen: dict[str, torch.Tensor] | None = None

    def held(self) -> dict[str, int]:
        """Return the size in bytes of each parameter, trained or not."""
        return {name: each.numel() * each.element_size() for name, each in self._parameters().items()}

    def digests(self, pieces: Sequence[Piece]) -> list[int]:
        """Return digests of these pieces, in place: array objects would change users' tensors. Tensors with gaps
        are copied, and what lies on a device."""
        parameters, copies = {**self._parameters(), **self._anchored()}, dict[str, torch.Tensor]()
        places = []
        for name, start, stop in pieces:
            tensor = parameters[name]
            if tensor.device.type != "cpu":
                whole = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
                tensor = copies[f"{name}/{start}"] = whole[start:stop].cpu()
                start, stop = 0, stop - start  # noqa: PLW2901
            elif not tensor.is_contiguous():
                tensor = copies.setdefault(name, tensor.detach().contiguous())
            places.append((tensor.data_ptr() + start, stop - start))
        return _native.digests(places)

    def _parameters(self) -> dict[str, torch.Tensor]:
        if self._seen is None:
            self._seen = {
                name: each
                for name, each in self._model.named_parameters()
                if each.device.type != "meta" and each.layout == torch.strided
            }
        return self._seen

    def watch_gradients(self, made: Callable[[str, int], None]) -> Callable[[], None]:
        """Watch gradients by hooks that come before they are accumulated."""

        def hook_of(name: str) -> Callable[[torch.Tensor], None]:
            return lambda gradient: made(name, _digest(gradient))

        hooks = [each.register_hook(hook_of(name)) for name, each in self._trained.items()]

        def stop() -> None:
            for hook in hooks:
                hook.remove()

        return stop


def _digest(gradient: torch.Tensor) -> int:
    """Return the gradient's digest; for a sparse one, that of its rows and their numbers."""
    with torch.no_grad():
        parts = [gradient._indices(), gradient._values()] if gradient.is_sparse else [gradient]
        if not bool(parts[-1].isfinite().all()):
            return UNKNOWN
        if not bool(parts[-1].any()):
            return ZERO
        whole = [each.detach().contiguous().resolve_conj().cpu() for each in parts]
    places = [(each.data_ptr(), each.numel() * each.element_size()) for each in whole]
    return functools.reduce(lambda one, other: one << 32 | other, _native.digests(places))

"""Placeholder for a gradient of which this rank has the mean only in part.

Scripts can read nothing but its shape: a number that they compute from it, such as a norm, would differ between ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from hocket.refusals import GRADIENTS, OWNERS, refused

_SHAPE = frozenset(
    {"shape", "dtype", "device", "layout", "ndim", "is_sparse", "requires_grad", "is_leaf", "grad_fn"}
    | {"_version", "requires_grad_", "size", "dim", "numel"}
)


class DividedGradient(torch.Tensor):
    """Placeholder for a gradient of which other ranks have parts."""

    of: str
    parameter: torch.nn.Parameter
    whole: torch.Tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Raise UsageError for functions that read elements."""
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name in _SHAPE:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        if name in ("zero_", "_foreach_zero_"):
            for each in args[0] if isinstance(args[0], list | tuple) else args:
                _zero(each)
            return args[0]
        raise refused(OWNERS, GRADIENTS, what=name or func, named=_named(args))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]  # torch's has no types
        """Return a name and a shape, without elements."""
        return f"DividedGradient(of {self.of}, {list(self.shape)})"


def _zero(gradient: torch.Tensor) -> None:
    """Fill a gradient with zeros, which are whole on all ranks: a divided one is replaced with its view."""
    if not isinstance(gradient, DividedGradient):
        gradient.zero_()
        return
    gradient.whole.zero_()
    if gradient.parameter.grad is gradient:
        gradient.parameter.grad = gradient.whole


def _named(args: Iterable[Any]) -> str:
    for each in args:
        if isinstance(each, DividedGradient):
            return f"the gradient of `{each.of}`"
        if isinstance(each, list | tuple) and any(isinstance(one, DividedGradient) for one in each):
            return _named(each)
    return "a gradient"

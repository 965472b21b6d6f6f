"""Reductions of element types that `torch.distributed` may request, and their native implementation.

The accepted pairs are the union of what PyTorch's backends for NCCL, Gloo and MPI accept; docs/torch-distributed.md has
the table, which `tests/torch/test_accepted.py` writes. An element type that the kernels lack travels in a wider type, its
carrier, and is rounded or wrapped once, at the end.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from hocket.torch.backend.tensors import Lent, contiguous, is_dense, lend
from hocket.torch.dtypes import DTYPES

NAMES = {
    "SUM": "sum",
    "AVG": "sum",
    "PREMUL_SUM": "sum",
    "MIN": "min",
    "MAX": "max",
    "PRODUCT": "product",
    "BAND": "and",
    "BOR": "or",
    "BXOR": "xor",
}
"""Names of reductions in torch → native names."""
ELEMENTS = DTYPES | {torch.int64: "i64", torch.int32: "i32", torch.int8: "i8", torch.uint8: "u8"}
CARRIERS = {
    torch.int16: torch.int32,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
}
PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Complex type → type of its real and imaginary parts, which are added separately."""
OF_COMPLEX = ("SUM", "AVG", "PREMUL_SUM")
OF_BOOL = {
    "SUM": "max",
    "BOR": "max",
    "MAX": "max",
    "PRODUCT": "min",
    "BAND": "min",
    "MIN": "min",
    "BXOR": "xor",
}
"""Reductions of booleans, which are bytes of 0 and 1: their sum means any, as in NCCL."""
BITWISE = ("BAND", "BOR", "BXOR")


@dataclass(frozen=True)
class Reduction:
    """Reduction of one element type. `native` and `element` are the native arguments."""

    native: str
    element: str
    carrier: torch.dtype | None = None
    factor: float | torch.Tensor | None = None
    """Factor of each input before the sum (PREMUL_SUM)."""
    divisor: int | None = None
    """Divisor of an average. Integers are divided last, rounding towards zero; f16 first, so that the sum does not
    overflow."""

    def run(self, call: Callable[[Lent, str, str], None], tensor: torch.Tensor, *, written: bool) -> None:
        """Run native `call` on the carrier of `tensor`, as `carried` makes it."""
        if self.is_plain and is_dense(tensor):
            call(lend(tensor), self.native, self.element)
            return
        with self.carried([tensor], written=written) as (dense,):
            call(lend(dense), self.native, self.element)

    @contextlib.contextmanager
    def carried(
        self, tensors: Sequence[torch.Tensor], *, read: bool = True, written: bool
    ) -> Iterator[list[torch.Tensor]]:
        """Yield the native form of `tensors`: contiguous, of type `element`.

        If `read`, the native form has their values; if `written`, the results are copied back.
        """
        with contiguous(tensors, written=written) as dense:
            plain = [torch.view_as_real(each) if each.is_complex() else each for each in dense]
            carried = [self._prepared(each) if read else self._like(each) for each in plain]
            yield carried
            if written:
                for to, result in zip(plain, carried, strict=True):
                    self._finish(to, result)

    @functools.cached_property
    def is_plain(self) -> bool:
        """True if the native side accepts a tensor's memory directly."""
        return self.carrier is None and self.factor is None and self.divisor is None

    @property
    def _divides_first(self) -> bool:
        return self.element == "f16"

    def _like(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.carrier is None else torch.empty_like(tensor, dtype=self.carrier)

    def _prepared(self, tensor: torch.Tensor) -> torch.Tensor:
        carried = tensor if self.carrier is None else tensor.to(self.carrier)
        if isinstance(self.factor, torch.Tensor):
            carried = carried * self.factor.to(carried.dtype)
        elif self.factor is not None:
            carried = carried * self.factor
        if self.divisor is not None and self._divides_first:
            carried = carried / self.divisor
        return carried

    def _finish(self, to: torch.Tensor, result: torch.Tensor) -> None:
        with torch.no_grad():
            if self.divisor is not None and not self._divides_first:
                result.div_(self.divisor, rounding_mode=None if result.is_floating_point() else "trunc")
            if to.data_ptr() != result.data_ptr():
                to.copy_(result)


def reduction(dtype: torch.dtype, op: Any, members: int) -> Reduction:
    """Return the reduction for `op`, a `ReduceOp`, over this many members; TypeError names an unsupported pair."""
    name = name_of(op)
    if dtype == torch.bool and name in OF_BOOL:
        return Reduction(OF_BOOL[name], "u8")
    parts = PARTS.get(dtype, dtype)
    carrier = CARRIERS.get(parts)
    element = ELEMENTS.get(parts if carrier is None else carrier)
    refused = (
        name not in NAMES
        or element is None
        or (dtype.is_complex and name not in OF_COMPLEX)
        or (name in BITWISE and parts.is_floating_point)
        or (name == "PREMUL_SUM" and not parts.is_floating_point)
    )
    if refused or element is None:
        raise TypeError(
            f"backend hocket has no {name} of {dtype}, nor has NCCL, Gloo or MPI\n"
            "hint: docs/torch-distributed.md lists the reductions of each element type"
        )
    # ReduceOp reveals its factor nowhere else.
    factor = op.__getstate__()[1] if name == "PREMUL_SUM" else None
    if isinstance(factor, torch.Tensor):
        # Reductions are made on the host.
        factor = factor.cpu()
    return Reduction(NAMES[name], element, carrier, factor, members if name == "AVG" else None)


def name_of(op: Any) -> str:
    """Return the name of a `ReduceOp`, such as `SUM`."""
    known = dist.ReduceOp.RedOpType.__members__
    return next((name for name, value in known.items() if op == value), str(op))

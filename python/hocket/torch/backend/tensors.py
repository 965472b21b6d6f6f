"""Tensors as the native side takes them: bytes at an address, an element type, a reduction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch.distributed as dist

import torch

Lent = tuple[int, int]
"""Address and bytes."""

ELEMENTS = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.uint8: "u8",
}
"""What is reduced; anything is moved."""
REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "sum",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.BAND: "and",
    dist.ReduceOp.BOR: "or",
    dist.ReduceOp.BXOR: "xor",
}
OF_BOOL = {"sum": "max", "or": "max", "product": "min", "and": "min"}
"""Booleans are bytes of 0 and 1: their sum is any, their product all."""
OF_COMPLEX = ("sum",)


def lend(tensor: torch.Tensor) -> Lent:
    """Of a contiguous tensor; valid as long as the tensor is."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def lend_all(tensors: Sequence[torch.Tensor]) -> list[Lent]:
    """Each of them."""
    return [lend(tensor) for tensor in tensors]


def check(tensors: Sequence[torch.Tensor]) -> None:
    """TypeError or ValueError for what cannot be moved."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise TypeError(
                f"backend hocket moves memory of the CPU, this tensor is on {tensor.device}\n"
                "hint: new_group(backend='nccl')"
            )
        if tensor.is_sparse:
            raise ValueError("backend hocket moves dense tensors\nhint: tensor.to_dense()")


def reduction(tensor: torch.Tensor, op: dist.ReduceOp.RedOpType) -> tuple[str, str]:
    """The names of a reduction and of the elements that it is over; TypeError when there is no such pair."""
    name = next((name for known, name in REDUCTIONS.items() if op == known), None)
    if name is None:
        raise TypeError(
            f"backend hocket has no reduction {op}\nhint: {', '.join(each.name for each in REDUCTIONS)}"
        )
    averages = op == dist.ReduceOp.AVG
    if tensor.dtype == torch.bool and not averages:
        return OF_BOOL.get(name, name), "u8"
    if tensor.is_complex() and name in OF_COMPLEX:
        return name, "f64" if tensor.dtype == torch.complex128 else "f32"
    element = ELEMENTS.get(tensor.dtype)
    if element is None or (averages and not tensor.dtype.is_floating_point):
        raise TypeError(f"backend hocket has no {op} of {tensor.dtype}")
    if name in ("and", "or", "xor") and tensor.dtype.is_floating_point:
        raise TypeError(f"bitwise reductions are of integers, not of {tensor.dtype}")
    return name, element


@contextlib.contextmanager
def between(
    inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """What a collective reads and what it writes, both as `contiguous`."""
    with contiguous(inputs, written=False) as dense, contiguous(outputs, written=True) as into:
        yield dense, into


@contextlib.contextmanager
def contiguous(tensors: Sequence[torch.Tensor], *, written: bool) -> Iterator[list[torch.Tensor]]:
    """The tensors, or copies of those that are not contiguous, which are copied back if `written`."""
    dense = [tensor.detach().resolve_conj().resolve_neg().contiguous() for tensor in tensors]
    yield dense
    if written:
        with torch.no_grad():
            for tensor, copy in zip(tensors, dense, strict=True):
                if tensor.data_ptr() != copy.data_ptr():
                    tensor.detach().copy_(copy)

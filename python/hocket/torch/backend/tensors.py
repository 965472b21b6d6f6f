"""Tensors for the native side: contiguous bytes at an address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch

from hocket.errors import UsageError
from hocket.torch.backend.errors import as_torch

Lent = tuple[int, int]
"""Address and length in bytes."""


def lend(tensor: torch.Tensor) -> Lent:
    """Return address and length of a contiguous tensor; valid as long as the tensor is."""
    return tensor.data_ptr(), tensor.nbytes


def lend_all(tensors: Sequence[torch.Tensor]) -> list[Lent]:
    """Return address and length of each tensor."""
    return [lend(tensor) for tensor in tensors]


def device_of(tensors: Iterable[torch.Tensor], call: str) -> torch.device | None:
    """Return the device of a call's tensors, None if they are on the CPU.

    TypeError, ValueError: they cannot be moved; RuntimeError: they are on several devices.
    """
    found: torch.device | None = None
    for at, tensor in enumerate(tensors):
        if tensor.is_sparse:
            raise ValueError("backend hocket moves dense tensors\nhint: tensor.to_dense()")
        device = None if tensor.is_cpu else tensor.device
        if at and device != found:
            raise as_torch(
                UsageError(
                    f"{call}: tensors on {found or 'cpu'} and on {device or 'cpu'} in one call\n"
                    "hint: tensor.to(…) brings all of a call to one device"
                )
            )
        found = device
    return found


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's memory has its values one after the other, and autograd does not track it."""
    return (
        tensor.is_contiguous() and not tensor.requires_grad and not tensor.is_conj() and not tensor.is_neg()
    )


@contextlib.contextmanager
def between(
    inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Yield the inputs and the outputs of a collective, both made `contiguous`."""
    with contiguous(inputs, written=False) as dense, contiguous(outputs, written=True) as into:
        yield dense, into


@contextlib.contextmanager
def contiguous(tensors: Sequence[torch.Tensor], *, written: bool) -> Iterator[list[torch.Tensor]]:
    """Yield the tensors, or copies of non-contiguous ones, which are copied back if `written`."""
    dense = [
        tensor if is_dense(tensor) else tensor.detach().resolve_conj().resolve_neg().contiguous()
        for tensor in tensors
    ]
    yield dense
    if written:
        with torch.no_grad():
            for tensor, copy in zip(tensors, dense, strict=True):
                if tensor.data_ptr() != copy.data_ptr():
                    tensor.detach().copy_(copy)


def check_same_dtype(pieces: Sequence[torch.Tensor], own: torch.Tensor) -> None:
    """Raise TypeError if one of `pieces` has another element type than `own`."""
    for piece in pieces:
        if piece.dtype != own.dtype:
            raise TypeError(f"a tensor of {piece.dtype} among those of {own.dtype}")


def lengths(tensor: torch.Tensor, splits: Sequence[int], size: int) -> list[int]:
    """Return sizes of the parts of the first dimension for `size` ranks: `splits`, or equal sizes.

    ValueError: `splits` do not fit.
    """
    length = tensor.size(0) if tensor.dim() else 1
    if not splits:
        if length % size:
            raise ValueError(f"a first dimension of {length} is not divisible by {size} ranks")
        return [length // size] * size
    if len(splits) != size or sum(splits) != length:
        raise ValueError(f"splits {list(splits)} of a first dimension of {length} for {size} ranks")
    return list(splits)

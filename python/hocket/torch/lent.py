"""A tensor's memory as an array of NumPy, and registered memory as a tensor.

`tensor.numpy()` does the same, but a tensor can never be resized after it: a model's own tensors must stay what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hocket import _native
from hocket.torch.dtypes import TORCH_DTYPES


class _Lent:
    """NumPy's interface to a tensor's memory; the array keeps the tensor alive."""

    def __init__(self, tensor: torch.Tensor, kind: np.dtype[Any]) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": kind.str,
            "shape": tuple(tensor.shape),
            "data": (tensor.data_ptr(), False),
        }


def array_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the memory of a contiguous tensor on the CPU, without a copy.

    >>> tensor = torch.arange(3)
    >>> array_of(tensor)[1] = 5
    >>> tensor.resize_(2)
    tensor([0, 5])
    """
    # Whatever the default device of the script is.
    kind = torch.empty(0, dtype=tensor.dtype, device="cpu").numpy().dtype
    if tensor.numel() == 0:
        return np.empty(tuple(tensor.shape), kind)
    return np.asarray(_Lent(tensor, kind))


def bytes_of(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Return the tensor's memory as bytes, for any element type."""
    return array_of(tensor.detach().reshape(-1).view(torch.uint8))


def tensor_over(memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor over `memory` from byte `start` on."""
    count = torch.Size(shape).numel()
    if count == 0:
        return torch.empty(tuple(shape), dtype=TORCH_DTYPES[dtype], device="cpu")
    whole = torch.frombuffer(memory, dtype=TORCH_DTYPES[dtype], count=count, offset=start)
    return whole.view(tuple(shape))

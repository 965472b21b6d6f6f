"""Element types: torch's and Hocket's names."""

from __future__ import annotations

import torch

from hocket.training.memory.gradients import COMPLEX

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}
"""Types of gradients."""

PARTS = {torch.complex128: "f64", torch.complex64: "f32", torch.complex32: "f16"}
"""Types of the parts of complex numbers, as which their gradients travel."""

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()} | {
    COMPLEX[part]: dtype for dtype, part in PARTS.items()
}

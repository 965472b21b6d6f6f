"""Element types: torch's and Hocket's names."""

from __future__ import annotations

import torch

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}
"""Of gradients."""

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}

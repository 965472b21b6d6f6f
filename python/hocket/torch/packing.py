"""Plain data and tensors as bytes, in the form of `torch.save`."""

from __future__ import annotations

import io
from typing import Any

import torch


def packed(values: Any) -> bytes:
    """Return plain data and tensors as bytes."""
    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


def unpacked(data: bytes) -> Any:
    """Return values that were `packed`, perhaps on another rank, on the host: that rank's device may have another number."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)

"""Parts of PyTorch that an older one, from 2.4 on, has elsewhere or lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import GroupName
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor
else:
    try:
        from torch.distributed.distributed_c10d import GroupName
    except ImportError:
        GroupName = str
    try:
        from torch.distributed.fsdp import FSDPModule
        from torch.distributed.tensor import DTensor
    except ImportError:
        from torch.distributed._composable.fsdp import FSDPModule
        from torch.distributed._tensor import DTensor

__all__ = ["DTensor", "FSDPModule", "GroupName", "accelerator", "reconfigures", "total_norm"]


def accelerator() -> torch.device | None:
    """Return the kind of device that PyTorch uses here, other than the CPU, if there is one."""
    if hasattr(torch, "accelerator"):
        return torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cuda") if torch.cuda.is_available() else None


def reconfigures(opts: Any) -> bool:
    """Return whether a group's options ask for members that change, which those of older ones cannot."""
    return getattr(opts, "enable_reconfigure", False)


def total_norm(tensors: Sequence[torch.Tensor], norm_type: float) -> torch.Tensor:
    """Return the norm of all tensors together."""
    if hasattr(torch.nn.utils, "get_total_norm"):
        return torch.nn.utils.get_total_norm(tensors, norm_type)
    if not tensors:
        return torch.tensor(0.0)
    device = tensors[0].device
    norms = [torch.linalg.vector_norm(each, norm_type).to(device) for each in tensors]
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    return norm

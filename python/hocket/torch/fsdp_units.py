"""Units of FSDP2: the parameters that one `fully_shard` call groups, whose gradients are one buffer.

PyTorch tells some facts of them only in attributes that are its own; they are read here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hocket.torch.older import DTensor, FSDPModule

ROOT = "model"
"""Name of the unit of the whole model, whose module has no name."""

SAFE_TYPES = (torch.float32, torch.bfloat16)
"""Types of buffers that FSDP2 divides before they are reduced, not after."""


@dataclass(frozen=True, eq=False)
class Unit:
    """One unit. `name`: of its first module in the model; `at`: its position among the units."""

    name: str
    at: int
    module: FSDPModule
    group: Any

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters, each the DTensor that the optimizer has."""
        return [each.sharded_param for each in self.group.fsdp_params]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that hold one copy of the unit, this one among them, in the order of their places."""
        first: Any = self.parameters[0]
        return tuple(first.device_mesh.mesh.flatten().tolist())

    @property
    def all_reduces(self) -> bool:
        """True unless `set_requires_all_reduce(False)` puts means among replicas off."""
        return bool(self.group.all_reduce_grads)

    @property
    def divides(self) -> bool:
        """True if `set_gradient_divide_factor` replaces the division by the number of ranks."""
        return getattr(self.group, "gradient_divide_factor", None) is not None

    def keeps(self, buffer: torch.Tensor) -> bool:
        """Return whether FSDP2 makes gradients of the buffer's memory, as it is when backward ends: it adds it to nothing, converts
        and divides nothing, and nobody looks at the gradients before."""
        return (
            buffer.dtype in SAFE_TYPES
            and not getattr(self.group, "force_sum_reduction_for_comms", False)
            and all(
                each.grad is None
                and each.dtype == buffer.dtype
                and not getattr(each, "_post_accumulate_grad_hooks", None)
                for each in self.parameters
            )
        )

    def holds(self, buffer: torch.Tensor) -> bool:
        """Return whether gradients of the unit are that memory, after `keeps`."""
        gradients = [local(each.grad) for each in self.parameters if each.grad is not None]
        storages = {each.untyped_storage().data_ptr() for each in gradients if each.numel()}
        return storages <= {buffer.untyped_storage().data_ptr()}


def units_of(model: nn.Module) -> Iterator[Unit]:
    """Yield the units of a model that have parameters, in the order of its modules."""
    known: set[int] = set()
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        state: Any = module._get_fsdp_state()
        # PyTorch before 2.11 has one group for a module at most, under another name.
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [each for each in [state._fsdp_param_group] if each is not None]
        for group in groups:
            if id(group) not in known:
                known.add(id(group))
                yield Unit(name or ROOT, len(known) - 1, module, group)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor

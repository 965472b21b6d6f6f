"""Wrappers that reduce a model's gradients by themselves. Trainers put models into one; beside `distribute`, both would reduce.

A model does not know its wrapper. The wrapper is looked for among all objects: once, where there is a process group.
"""

from __future__ import annotations

import gc
import sys

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from hocket.errors import UsageError

KINDS = (DistributedDataParallel, DataParallel)


def refuse_wrapped(model: torch.nn.Module) -> None:
    """Raise UsageError if the model is wrapped in one of `KINDS`, is one, has one inside, or is sharded."""
    _refuse_spread(model)
    inside = next((type(each) for each in model.modules() if isinstance(each, KINDS)), None)
    found = inside or _around(model) or _sharded(model)
    if found is not None:
        raise UsageError(
            f"the model is in {found.__name__}, which reduces its gradients itself; transformers' Trainer, Accelerate and "
            "Lightning put models there by themselves where there are several ranks\n"
            "hint: in place of hk.distribute, hk.trainer(Trainer(…)), hk.accelerate(Accelerator()) or Lightning's "
            'Trainer(strategy="hocket"), docs/trainers.md; in a loop of your own, without that wrapper'
        )


def _around(model: torch.nn.Module) -> type | None:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    if _kind_around(model) is None:
        return None
    gc.collect()  # the wrapper may be unreachable by now
    return _kind_around(model)


def _kind_around(model: torch.nn.Module) -> type | None:
    for each in gc.get_objects():
        # Not `isinstance`, which asks proxies for a class, and may load modules so.
        if issubclass(type(each), KINDS) and any(inner is model for inner in each.modules()):
            return type(each)
    return None


def _refuse_spread(model: torch.nn.Module) -> None:
    """Raise UsageError if parameters are DTensors, of which each rank has a part that PyTorch keeps to itself."""
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is None or not hasattr(tensors, "DTensor") or _sharded(model) is not None:
        return
    for name, each in model.named_parameters():
        if isinstance(each, tensors.DTensor):
            names = ", ".join(each.device_mesh.mesh_dim_names or ())
            raise UsageError(
                f"`{name}` is a DTensor, in parts over ({names}): hk.distribute averages plain tensors\n"
                "hint: hk.distribute(…, group=…) is for stages of a pipeline, whose parameters are plain; a model that FSDP2 has "
                "sharded takes hk.hsdp_hook(model)"
            )


def _sharded(model: torch.nn.Module) -> type | None:
    sharding = sys.modules.get("torch.distributed.fsdp")
    # PyTorch before 2.6 has it elsewhere.
    if sharding is None or not hasattr(sharding, "FSDPModule"):
        return None
    if not any(isinstance(each, sharding.FSDPModule) for each in model.modules()):
        return None
    return sharding.FSDPModule  # type: ignore[no-any-return]

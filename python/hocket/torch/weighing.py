"""Weights of a rank's gradients in PyTorch: hooks that multiply each gradient before autograd adds it to what there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from hocket.training.memory.buckets import LoadedBucket


def weigh(parameters: Mapping[str, torch.nn.Parameter], factor: Callable[[], float]) -> None:
    """Multiply gradients with `factor()` as backward makes them, from now on."""

    def hook(gradient: torch.Tensor) -> torch.Tensor | None:
        by = factor()
        return None if by == 1.0 else gradient * by

    for each in parameters.values():
        trains = each.requires_grad
        # A frozen one takes no hook, and may be thawed later.
        each.requires_grad_(True)
        each.register_hook(hook)
        each.requires_grad_(trains)


def scaled(trained: Mapping[str, torch.nn.Parameter], bucket: LoadedBucket, factor: float) -> None:
    """Multiply the means of a bucket, and of its sparse gradients, which lie elsewhere."""
    bucket.elements.mul_(factor)
    if bucket.sparse:
        for gradient in (trained[name].grad for name in bucket.names):
            if gradient is not None:
                gradient.mul_(factor)

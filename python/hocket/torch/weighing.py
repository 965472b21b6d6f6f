"""Weights of a rank's gradients in PyTorch: hooks that multiply each gradient before autograd adds it to what there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from hocket.training.memory.buckets import LoadedBucket


def weigh(parameters: Mapping[str, torch.nn.Parameter], factor: Callable[[], float]) -> Callable[[], None]:
    """Multiply gradients with `factor()` as backward makes them; return what ends that."""

    def hook(gradient: torch.Tensor) -> torch.Tensor | None:
        by = factor()
        return None if by == 1.0 else gradient * by

    handles = []
    for each in parameters.values():
        trains = each.requires_grad
        # A frozen one takes no hook, and may be thawed later.
        each.requires_grad_(True)
        handles.append(each.register_hook(hook))
        each.requires_grad_(trains)

    def end() -> None:
        for each in handles:
            each.remove()

    return end


def scaled(trained: Mapping[str, torch.nn.Parameter], bucket: LoadedBucket, factor: float) -> None:
    """Multiply the means of a bucket, and of its sparse gradients, which lie elsewhere."""
    bucket.elements.mul_(factor)
    if bucket.sparse:
        for gradient in (trained[name].grad for name in bucket.names):
            if gradient is not None:
                gradient.mul_(factor)

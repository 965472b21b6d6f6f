"""Reduction of gradients that backwards have accumulated without communication, where none of them was known to be the last."""

from __future__ import annotations

import torch

from hocket.errors import UsageError
from hocket.torch.in_training import distributed_of


def reduce_gradients(model: torch.nn.Module) -> None:
    """Average what backwards within `no_sync` have accumulated, as the last backward of a step does elsewhere.

    For schedules of pipelines, which run all backwards of a step themselves: `with model.no_sync(): schedule.step(…)`, then this,
    then `optimizer.step()`. All ranks call it.

    UsageError: the model is not distributed, or has no gradients.
    """
    trained = distributed_of(model).framework.trained.values()
    made = [(each, each.grad) for each in trained if each.grad is not None]
    if not made:
        raise UsageError(
            "reduce_gradients: the model has no gradients\nhint: call it after the backwards, before optimizer.zero_grad()"
        )
    # A backward that adds nothing; sparse gradients stay sparse.
    zeros = [
        torch.zeros_like(gradient)
        if gradient.is_sparse
        else torch.zeros((), dtype=gradient.dtype, device=gradient.device).expand_as(gradient)
        for _, gradient in made
    ]
    torch.autograd.backward([each for each, _ in made], zeros)

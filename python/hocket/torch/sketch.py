"""Gradients in about a thousand numbers, so that ranks that do not exchange them still know their norms and products.

A count sketch (Charikar, Chen and Farach-Colton 2002): each element is added to one of the numbers, or taken from it. The
product of two sketches has the product of the two gradients as its mean, and a deviation of about the product of their norms
over the root of the sketch's length: 3 % of one iteration, and less of the mean of several.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

NUMBERS = 1024

PARAMETERS_MAX = 1_000_003
"""Number of parameters beyond which some share their random numbers in two seeds."""


def sketch(parameters: Iterable[torch.nn.Parameter], *, seed: int) -> bytes:
    """Return a sketch of the gradients, in double precision. Sketches of one seed and the same parameters can be multiplied."""
    found = torch.zeros(NUMBERS, dtype=torch.float64, device="cpu")
    for at, each in enumerate(parameters):
        if each.grad is None:
            continue
        # The generator takes 32 bits of a seed.
        draw = torch.Generator().manual_seed((seed * PARAMETERS_MAX + at) % 2**32)
        gradient = each.grad.detach().to_dense().cpu().reshape(-1).double()
        places = torch.randint(2 * NUMBERS, gradient.shape, generator=draw, device="cpu")
        found.index_add_(0, places // 2, gradient * (places % 2 * 2 - 1))
    return found.numpy().tobytes()

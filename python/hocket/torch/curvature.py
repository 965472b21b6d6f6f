"""The largest eigenvalue of a loss's Hessian, by power iteration on differences of gradients: nothing is differentiated twice.

For optimizers that divide gradients by earlier ones (Adam), the eigenvalue is that of the loss in the coordinates in which they
descend: of P^-1/2 H P^-1/2, P the divisor (Cohen et al. 2022, "Adaptive gradient methods at the edge of stability").
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import torch

from hocket.errors import UsageError

CONVERGED = 0.01
"""Relative change of the value at which power iteration ends."""

SEED = 1


def largest_curvature(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[], torch.Tensor],
    iterations: int,
) -> float:
    """See `hocket.torch.curvature`. An Adam that has not stepped divides by the size of the first gradient."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    with _as_before(model, parameters):
        first = _gradient(parameters, loss)
        scales = [_scale(optimizer, each, own) for each, own in zip(parameters, first, strict=True)]
        draw = torch.Generator().manual_seed(SEED)
        direction = [
            torch.randn(each.shape, generator=draw, dtype=torch.float64, device="cpu").to(each.device)
            for each in parameters
        ]
        found = 0.0
        for _ in range(iterations):
            size = _norm(direction)
            if size == 0:
                return 0.0
            direction = [each / size for each in direction]
            curved = _product(parameters, loss, direction, scales)
            before, found = found, abs(_dot(direction, curved))
            if not math.isfinite(found):
                raise UsageError("curvature: the loss near the parameters is no finite number")
            if abs(found - before) <= CONVERGED * found:
                break
            direction = curved
    return found


def _product(
    parameters: Sequence[torch.Tensor],
    loss: Callable[[], torch.Tensor],
    direction: Sequence[torch.Tensor],
    scales: Sequence[torch.Tensor | float],
) -> list[torch.Tensor]:
    """Return the Hessian, in scaled coordinates, times a vector of length 1."""
    begin = [each.detach().clone() for each in parameters]
    moves = [each * scale for each, scale in zip(direction, scales, strict=True)]
    # Rounding of the loss and its third derivative are balanced at the cube root of the type's precision.
    precision = max(torch.finfo(each.dtype).eps for each in parameters)
    width = precision ** (1 / 3) * (1 + _norm(begin)) / max(_norm(moves), 1e-300)
    sides = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            for each, own, move in zip(parameters, begin, moves, strict=True):
                each.copy_(own + (sign * width * move).to(own.dtype))
        sides.append(_gradient(parameters, loss))
    with torch.no_grad():
        for each, own in zip(parameters, begin, strict=True):
            each.copy_(own)
    return [(above - below) / (2 * width) * scale for above, below, scale in zip(*sides, scales, strict=True)]


def _gradient(parameters: Sequence[torch.Tensor], loss: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    """Return gradients in double precision. None is accumulated, so none is sent; each call draws the same random numbers."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(SEED)
        value = loss()
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            raise UsageError("curvature: the loss is no scalar that depends on the model's parameters")
        made = torch.autograd.grad(value, list(parameters), allow_unused=True)
    found = [
        torch.zeros_like(each, dtype=torch.float64) if own is None else own.detach().to_dense().double()
        for each, own in zip(parameters, made, strict=True)
    ]
    if not all(bool(each.isfinite().all()) for each in found):
        raise UsageError("curvature: the loss near the parameters has gradients that are no finite numbers")
    return found


def _scale(
    optimizer: torch.optim.Optimizer, parameter: torch.Tensor, gradient: torch.Tensor
) -> torch.Tensor | float:
    """Return the root of the factor by which a step multiplies a gradient, apart from the learning rate."""
    group = next(
        (each for each in optimizer.param_groups if any(own is parameter for own in each["params"])), {}
    )
    if "betas" not in group:
        return 1.0
    state = optimizer.state.get(parameter, {})
    if "exp_avg_sq" not in state:
        divisor = gradient.abs()
    else:
        corrected = 1 - group["betas"][1] ** float(state["step"])
        divisor = (state["exp_avg_sq"].double() / corrected).sqrt()
    scale: torch.Tensor = (divisor + group.get("eps", 1e-8)).rsqrt()
    return scale


@contextlib.contextmanager
def _as_before(model: torch.nn.Module, parameters: Sequence[torch.Tensor]) -> Iterator[None]:
    """Restore parameters and buffers, bit for bit, on exit."""
    kept = [*parameters, *model.buffers()]
    values = [each.detach().clone() for each in kept]
    try:
        yield
    finally:
        with torch.no_grad():
            for each, value in zip(kept, values, strict=True):
                each.copy_(value)


def _dot(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> float:
    return math.fsum(float((a.double() * b.double()).sum()) for a, b in zip(left, right, strict=True))


def _norm(of: Sequence[torch.Tensor]) -> float:
    return math.sqrt(_dot(of, of))

"""Operators of batch norm over all ranks, which PyTorch has for CUDA and XPU alone, made of others that run late."""

from __future__ import annotations

import torch


def batch_norm_stats(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(wide(x), others(x), correction=0)
    return mean, (variance + eps).rsqrt()


def batch_norm_gather_stats_with_counts(  # noqa: PLR0917  # as PyTorch calls it
    _x: torch.Tensor,
    means: torch.Tensor,
    inverses: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and inverse deviation of all ranks' values, by those of each rank."""
    count = counts.sum()
    shares = (counts / count).unsqueeze(1)
    mean = (means * shares).sum(0)
    variance = ((inverses.pow(-2) - eps + (means - mean).square()) * shares).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * count / (count - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    _eps: float,
) -> torch.Tensor:
    made = (wide(x) - along(mean, x)) * along(inverse, x)
    made = made if weight is None else made * along(weight, x)
    made = made if bias is None else made + along(bias, x)
    return made.to(x.dtype)


def batch_norm_backward_reduce(
    gradient: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    weight: torch.Tensor | None,
    *_wanted: bool,
) -> tuple[torch.Tensor, ...]:
    """Sums of the gradient, and of its products with values less the mean; gradients of weight and bias."""
    total = wide(gradient).sum(others(x))
    products = (wide(gradient) * (wide(x) - along(mean, x))).sum(others(x))
    dtype = x.dtype if weight is None else weight.dtype
    return total, products, (products * inverse).to(dtype), total.to(dtype)


def batch_norm_backward_elemt(  # noqa: PLR0917  # as PyTorch calls it
    gradient: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    inverse: torch.Tensor,
    weight: torch.Tensor | None,
    total: torch.Tensor,
    products: torch.Tensor,
    counts: torch.Tensor,
) -> torch.Tensor:
    count = counts.sum()
    slope = along(inverse.square() * products / count, x)
    made = wide(gradient) - along(total / count, x) - (wide(x) - along(mean, x)) * slope
    made = made * along(inverse if weight is None else inverse * weight, x)
    return made.to(x.dtype)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def others(x: torch.Tensor) -> list[int]:
    """All dimensions but that of channels."""
    return [0, *range(2, x.dim())]


def along(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A value for each channel, as `x` has them."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


OPERATORS = (
    batch_norm_stats,
    batch_norm_gather_stats_with_counts,
    batch_norm_elemt,
    batch_norm_backward_reduce,
    batch_norm_backward_elemt,
)


def register() -> None:
    """Give the operators to PyTorch, for as long as the process lives."""
    library = torch.library.Library("aten", "IMPL")
    for each in OPERATORS:
        library.impl(each.__name__, each, "PrivateUse1")
    kept.append(library)


kept: list[torch.library.Library] = []

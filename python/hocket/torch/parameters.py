"""Parameters of a model as training knows them, and which of them ranks reduce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch

from hocket.errors import UsageError
from hocket.torch.dtypes import DTYPES, PARTS
from hocket.training.memory.gradients import Parameter


def trained_of(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters whose gradients are communicated, in registration order; shared ones once."""
    found = {name: each for name, each in model.named_parameters() if each.requires_grad}
    if not found:
        raise UsageError("the model has no parameters that require gradients: there is nothing to distribute")
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(each):
            raise UsageError(
                f"`{name}` has no shape yet: its layer makes it in the first forward\n"
                "hint: call the model once, on all ranks, before the optimizer is made"
            )
    first = next(iter(found.values()))
    for name, each in found.items():
        if each.device != first.device:
            raise UsageError(
                f"parameter `{name}` is on {each.device}, and others are on {first.device}: a rank has one device\n"
                "hint: start a rank for each device"
            )
        if each.dtype not in (*DTYPES, *PARTS):
            raise UsageError(
                f"parameter `{name}` has dtype {each.dtype}: known are {', '.join(map(str, (*DTYPES, *PARTS)))}"
            )
    return found


def check_steps_some(optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.nn.Parameter]) -> None:
    """Raise UsageError if the optimizer steps none of them: the model was copied, or its parameters replaced, after it was made.

    An optimizer may step only some: others may have an optimizer of their own.
    """
    own = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if own.isdisjoint(map(id, trained.values())):
        raise UsageError(
            "the optimizer steps no parameter of the model: it has another model's, or those before a replacement\n"
            "hint: make the optimizer from `model.parameters()` just before hk.distribute(model, optimizer)"
        )


def described(model: torch.nn.Module, trained: dict[str, torch.nn.Parameter]) -> Iterator[Parameter]:
    """Yield all parameters, and buffers."""
    kinds: tuple[tuple[Literal["parameter", "buffer"], Iterator[tuple[str, torch.Tensor]]], ...] = (
        ("parameter", model.named_parameters()),
        ("buffer", model.named_buffers()),
    )
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    sparse = {id(each.weight) for each in model.modules() if isinstance(each, embeddings) and each.sparse}
    for kind, named in kinds:
        for name, each in named:
            own = kind == "parameter" and name in trained
            pairs = own and each.dtype in PARTS
            dtype = PARTS[each.dtype] if pairs else DTYPES.get(each.dtype, str(each.dtype))
            yield Parameter(
                kind=kind,
                name=name,
                shape=(*each.shape, 2) if pairs else tuple(each.shape),
                dtype=dtype,
                trained=own,
                sparse=own and id(each) in sparse,
                pairs=pairs,
                staged=own and each.device.type != "cpu",
            )


def write_gradient(name: str, gradient: torch.Tensor | None, view: torch.Tensor, *, add: bool) -> None:
    """Copy a gradient into `view`, or add it to what is there; None is zero. UsageError: they are not alike."""
    if gradient is None:
        if not add:
            view.zero_()
        return
    gradient = gradient.to_dense() if gradient.is_sparse else gradient
    check_type(name, view, gradient)
    # The bucket's gradient has no graph, even if this one was made with a graph.
    plain = gradient.detach() if gradient.requires_grad else gradient
    if add:
        view.add_(plain)
    else:
        view.copy_(plain)


def check_type(name: str, view: torch.Tensor, gradient: Any, what: str = "gradient") -> None:
    """Raise UsageError if a gradient, or another tensor of that name, is not alike the view that it is to be written to."""
    if gradient.dtype != view.dtype or gradient.shape != view.shape or gradient.device != view.device:
        raise UsageError(
            f"the {what} of `{name}` is {list(gradient.shape)} of {gradient.dtype} on "
            f"{gradient.device}, it was {list(view.shape)} of {view.dtype} on {view.device} when the model was "
            "distributed\nhint: change the model before `distribute`"
        )

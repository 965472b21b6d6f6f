"""Buckets: registered memory whose slices are the gradients themselves.

A bucket holds its gradients' elements one after the other, then one flag element per gradient: 1 when this rank's backward
made it. The mean of a flag is above zero when any rank did, which is all that an unused parameter needs to know.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.torch.gradients import DTYPES

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class Bucket:
    """One bucket's memory and the views into it, in the order of the plan."""

    memory: _native.Memory
    elements: torch.Tensor
    flags: torch.Tensor
    names: tuple[str, ...]
    parameters: tuple[torch.nn.Parameter, ...]
    views: tuple[torch.Tensor, ...]

    def zero(self) -> None:
        """All gradients become zero and belong to their parameters again."""
        self.elements.zero_()
        self.flags.fill_(1)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is not view:
                parameter.grad = view

    def name_of(self, element: int) -> str:
        """The parameter that an element of the bucket belongs to."""
        end = 0
        for name, view in zip(self.names, self.views, strict=True):
            end += view.numel()
            if element < end:
                return name
        return "a flag"


def make(plan: Plan, parameters: dict[str, torch.nn.Parameter], engine: _native.Engine) -> list[Bucket]:
    """Allocate the plan's buckets and make each parameter's gradient a view into its own."""
    check(plan, parameters)
    made = []
    for bucket in plan.buckets:
        dtype = TORCH_DTYPES[bucket.dtype]
        memory = engine.allocate(bucket.elements * dtype.itemsize)
        elements = torch.frombuffer(memory, dtype=dtype)
        views = []
        start = 0
        for name in bucket.gradients:
            parameter = parameters[name]
            views.append(elements[start : start + parameter.numel()].view(parameter.shape))
            start += parameter.numel()
        made.append(
            Bucket(
                memory=memory,
                elements=elements[:start],
                flags=elements[start:],
                names=bucket.gradients,
                parameters=tuple(parameters[name] for name in bucket.gradients),
                views=tuple(views),
            )
        )
    return made


def check(plan: Plan, parameters: dict[str, torch.nn.Parameter]) -> None:
    """Whether the plan is for this model; UsageError names the first difference."""
    hint = "\nhint: profile the script again and make a new plan"
    planned = [name for bucket in plan.buckets for name in bucket.gradients]
    for name in planned:
        if name not in parameters:
            raise UsageError(f"the plan has a gradient `{name}`, the model has no such parameter{hint}")
    missing = next((name for name in parameters if name not in set(planned)), None)
    if missing is not None:
        raise UsageError(f"the model's parameter `{missing}` is in no bucket of the plan{hint}")
    if len(planned) != len(set(planned)):
        raise UsageError(f"the plan has a gradient in two buckets{hint}")
    for index, bucket in enumerate(plan.buckets):
        for name in bucket.gradients:
            dtype = DTYPES[parameters[name].dtype]
            if dtype != bucket.dtype:
                raise UsageError(f"`{name}` is {dtype}, the plan's bucket {index} is {bucket.dtype}{hint}")
        elements = sum(parameters[name].numel() + 1 for name in bucket.gradients)
        if elements != bucket.elements:
            raise UsageError(
                f"bucket {index} has {bucket.elements} elements in the plan, {elements} in the model{hint}"
            )

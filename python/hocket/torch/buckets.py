"""Buckets: registered memory whose slices are the gradients (or parameters) themselves, each with its loaded program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.planning.compile import bucket_program
from hocket.policy import bucketing
from hocket.policy.bucketing import Gradient
from hocket.policy.observed import Guard
from hocket.policy.policy import Policy
from hocket.policy.trace import Programs, TraceContext, Traced, layout
from hocket.torch.gradients import DTYPES

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
STATE_DTYPES = {**TORCH_DTYPES, "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8}


@dataclass(frozen=True)
class Spec:
    """A bucket to be: names in the order they lie in it, and what is done with it."""

    names: tuple[str, ...]
    dtype: str
    priority: int
    program: _native.Program
    kernels: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def traced(cls, bucket: bucketing.Bucket, traced: Traced) -> Spec:
        """Of what a policy's handlers make."""
        addresses = {name: each.address for name, each in traced.kernels.items() if each.address is not None}
        names = tuple(gradient.name for gradient in bucket.gradients)
        return cls(names, bucket.dtype, bucket.priority, traced.program, addresses, traced.starts)


@dataclass(frozen=True)
class Bucket:
    """One bucket's memory and the views into it."""

    memory: _native.Memory
    elements: torch.Tensor
    names: tuple[str, ...]
    parameters: tuple[torch.nn.Parameter, ...]
    views: tuple[torch.Tensor, ...]
    program: int
    """Its number in the engine."""

    def zero(self) -> None:
        """All gradients become zero and belong to their parameters again."""
        self.elements.zero_()
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
        raise IndexError(element)


def of_plan(plan: Plan, parameters: Mapping[str, torch.nn.Parameter]) -> list[Spec]:
    """The plan's buckets; UsageError when it is for another model."""
    check(plan, parameters)
    return [
        Spec(bucket.gradients, bucket.dtype, bucket.priority, bucket_program(index, plan))
        for index, bucket in enumerate(plan.buckets)
    ]


def assumed_backward(names: Iterable[str]) -> tuple[str, ...]:
    """The order in which backward makes gradients as far as their registration tells: the last first."""
    return tuple(reversed(list(names)))


def gradients(parameters: Mapping[str, torch.nn.Parameter], backward: Sequence[str] = ()) -> list[Gradient]:
    """Gradients as tracing knows them. `backward`: the order in which it makes them; forward uses them the other way round."""
    count = len(parameters)
    order = {name: at for at, name in enumerate(backward or assumed_backward(parameters))}
    return [
        Gradient(name, tuple(each.shape), DTYPES[each.dtype], order[name], count - 1 - order[name])
        for name, each in parameters.items()
    ]


def of_policy(
    policy: Policy,
    parameters: Mapping[str, torch.nn.Parameter],
    context: TraceContext,
    backward: Sequence[str] = (),
) -> tuple[list[Spec], list[Guard]]:
    """Buckets as a policy's handlers make them, and what they took for granted."""
    found = layout(policy, gradients(parameters, backward), context)
    programs = Programs(policy, context)
    traced = [programs.program(bucket, name=f"bucket.{at}") for at, bucket in enumerate(found.buckets)]
    specs = [Spec.traced(bucket, each) for bucket, each in zip(found.buckets, traced, strict=True)]
    # Buckets may share what was traced, and its guards.
    guards = {
        id(guard): guard for guard in (*found.guards, *(guard for each in traced for guard in each.guards))
    }
    return specs, list(guards.values())


def make(
    specs: Sequence[Spec], parameters: Mapping[str, torch.nn.Parameter], engine: _native.Engine, epoch: int
) -> list[Bucket]:
    """Allocate buckets and load their programs, in order: the same on all ranks."""
    made = []
    for index, spec in enumerate(specs):
        dtype = TORCH_DTYPES[spec.dtype]
        sizes = [parameters[name].numel() for name in spec.names]
        memory = engine.allocate(sum(sizes) * dtype.itemsize)
        elements = torch.frombuffer(memory, dtype=dtype) if sum(sizes) else torch.empty(0, dtype=dtype)
        parts = elements.split(sizes)
        label = f"bucket {index}" if epoch == 0 else f"bucket {index} of epoch {epoch}"
        program = engine.load(
            spec.program, {0: (memory, 0)}, priority=spec.priority, label=label, kernels=spec.kernels
        )
        made.append(
            Bucket(
                memory=memory,
                elements=elements,
                names=spec.names,
                parameters=tuple(parameters[name] for name in spec.names),
                views=tuple(
                    part.view(parameters[name].shape) for part, name in zip(parts, spec.names, strict=True)
                ),
                program=program,
            )
        )
    return made


def start_states(specs: Sequence[Spec], buckets: Sequence[Bucket], engine: _native.Engine) -> None:
    """State that starts as a slice of its bucket gets it, now that the bucket is filled."""
    for spec, bucket in zip(specs, buckets, strict=True):
        for name, (start, stop) in spec.starts.items():
            window = engine.state(bucket.program, name)
            if window is not None and len(window):
                torch.frombuffer(window, dtype=bucket.elements.dtype).copy_(bucket.elements[start:stop])


@dataclass(frozen=True)
class Loaded:
    """Buckets of an epoch and what they were made of."""

    specs: Sequence[Spec]
    buckets: Sequence[Bucket]


def carry_states(before: Loaded, after: Loaded, engine: _native.Engine, rank: int) -> None:
    """State goes on into a new epoch: what has an element per element of its bucket by parameter, wherever that lies now;
    other state where the bucket has the same parameters. The rest starts anew."""
    elements: dict[tuple[str, str], torch.Tensor] = {}
    whole: dict[tuple[str, tuple[str, ...]], torch.Tensor] = {}
    for spec, bucket in zip(before.specs, before.buckets, strict=True):
        for name, held in _states(spec, bucket, engine, rank):
            whole[name, spec.names] = held
            if len(held) == len(bucket.elements):
                sizes = [view.numel() for view in bucket.views]
                elements |= {
                    (name, each): part for each, part in zip(spec.names, held.split(sizes), strict=True)
                }
    for spec, bucket in zip(after.specs, after.buckets, strict=True):
        for name, held in _states(spec, bucket, engine, rank):
            if len(held) == len(bucket.elements):
                sizes = [view.numel() for view in bucket.views]
                for each, part in zip(spec.names, held.split(sizes), strict=True):
                    if (name, each) in elements:
                        part.copy_(elements[name, each])
            elif (name, spec.names) in whole and len(whole[name, spec.names]) == len(held):
                held.copy_(whole[name, spec.names])


def _states(
    spec: Spec, bucket: Bucket, engine: _native.Engine, rank: int
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, dtype, elements, kind in spec.program.buffers(rank):
        window = (
            engine.state(bucket.program, name) if kind in ("state", "shared_state") and elements else None
        )
        if window is not None:
            yield name, torch.frombuffer(window, dtype=STATE_DTYPES[dtype])


def check(plan: Plan, parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """Whether the plan is for this model; UsageError names the first difference."""
    hint = "\nhint: profile the script again and make a new plan"
    planned = [name for bucket in plan.buckets for name in bucket.gradients]
    for index, bucket in enumerate(plan.buckets):
        if not bucket.gradients:
            raise UsageError(f"the plan's bucket {index} is empty{hint}")
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
        elements = sum(parameters[name].numel() for name in bucket.gradients)
        if elements != bucket.elements:
            raise UsageError(
                f"bucket {index} has {bucket.elements} elements in the plan, {elements} in the model{hint}"
            )

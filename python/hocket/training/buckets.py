"""Buckets: registered memory whose slices are the gradients (or parameters) themselves, each with its loaded program."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.plan_check import check
from hocket.errors import UsageError
from hocket.planning.compile import bucket_program
from hocket.policy import bucketing
from hocket.policy.trace import Traced

MakeArray = Callable[[_native.Memory, int, str, Sequence[int]], Any]
"""`Framework.array`."""


@dataclass(frozen=True)
class CompiledBucket:
    """Gradients in the order in which they lie, and the program that they go through. Lower `priority` goes first."""

    gradients: tuple[Gradient, ...]
    priority: int
    program: _native.Program
    kernels: Mapping[str, int] = field(default_factory=dict)
    """By name: the address of a kernel of the user's."""
    starts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """State that starts as a slice of the bucket: from which element to which."""

    @classmethod
    def traced(cls, bucket: bucketing.Bucket, traced: Traced) -> CompiledBucket:
        """Of what a policy's handlers make."""
        kernels = {name: each.address for name, each in traced.kernels.items() if each.address is not None}
        return cls(bucket.gradients, bucket.priority, traced.program, kernels, traced.starts)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the gradients."""
        return tuple(each.name for each in self.gradients)

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.gradients[0].dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        return sum(each.elements for each in self.gradients)


@dataclass(frozen=True, eq=False)
class LoadedBucket:
    """A bucket in memory. `elements` is the framework's array of all of it, `views` are those of each gradient."""

    compiled: CompiledBucket
    memory: _native.Memory
    elements: Any
    views: tuple[Any, ...]
    program: int
    """Its number in the engine."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the gradients."""
        return self.compiled.names

    def name_of(self, element: int) -> str:
        """The parameter that an element of the bucket belongs to."""
        end = 0
        for each in self.compiled.gradients:
            end += each.elements
            if element < end:
                return each.name
        raise IndexError(element)


def of_plan(
    plan: Plan, gradients: Mapping[str, Gradient], traced: Mapping[int, CompiledBucket] | None = None
) -> list[CompiledBucket]:
    """The plan's buckets; `traced`: those that go by policies, by number. ProgramError: a program may not run."""
    made, proofs = dict(traced or {}), _native.Proofs()
    for at, bucket in enumerate(plan.buckets):
        if at not in made:
            own = tuple(gradients[name] for name in bucket.variables)
            made[at] = CompiledBucket(own, bucket.priority, bucket_program(at, plan, proofs))
    return [made[at] for at in range(len(plan.buckets))]


def check_runs(plan: Plan, gradients: Mapping[str, Gradient]) -> None:
    """ArtefactError: the plan is for another model, or not sound. UsageError names what sessions do not run."""
    check(plan, tuple(gradients.values()))
    _check_runs(plan)


def _check_runs(plan: Plan) -> None:
    """UsageError names what sessions do not run."""
    hint = "\nhint: `hocket plan` makes plans that jobs run"
    if plan.workers != tuple(range(plan.world)):
        raise UsageError(f"plan: ranks that do not compute are not run by plans{hint}")
    if plan.schedule not in (Schedule(), Schedule(overlap="gates")):
        raise UsageError(f"plan: delayed or merged gradients are not run{hint}")
    times = Counter(part.variable for bucket in plan.buckets for part in bucket.parts)
    for index, bucket in enumerate(plan.buckets):
        split = next((part.variable for part in bucket.parts if times[part.variable] > 1), None)
        if split is not None:
            raise UsageError(f"plan: bucket {index} has a part of {split}, and whole ones are run{hint}")
        if bucket.ways is not None:
            raise UsageError(f"plan: bucket {index} uses some cards alone, and all are used{hint}")


def assumed_backward(names: Iterable[str]) -> tuple[str, ...]:
    """The order in which backward makes gradients as far as their registration tells: the last first."""
    return tuple(reversed(list(names)))


def ordered(gradients: Mapping[str, Gradient], backward: Sequence[str] = ()) -> list[bucketing.Gradient]:
    """Gradients as tracing knows them. `backward`: the order in which it makes them; forward uses them the other way round."""
    count = len(gradients)
    order = {name: at for at, name in enumerate(backward or assumed_backward(gradients))}
    return [
        bucketing.Gradient(each.name, each.shape, each.dtype, order[each.name], count - 1 - order[each.name])
        for each in gradients.values()
    ]


def load(
    buckets: Sequence[CompiledBucket], engine: _native.Engine, array: MakeArray, epoch: int
) -> list[LoadedBucket]:
    """Allocate buckets and load their programs, in order: the same on all ranks."""
    loaded = []
    for index, bucket in enumerate(buckets):
        memory = engine.allocate(bucket.elements * ITEM_BYTES[bucket.dtype])
        starts = itertools.accumulate((each.bytes for each in bucket.gradients), initial=0)
        label = f"bucket {index}" if epoch == 0 else f"bucket {index} of epoch {epoch}"
        loaded.append(
            LoadedBucket(
                compiled=bucket,
                memory=memory,
                elements=array(memory, 0, bucket.dtype, (bucket.elements,)),
                views=tuple(
                    array(memory, start, each.dtype, each.shape)
                    for each, start in zip(bucket.gradients, starts, strict=False)
                ),
                program=engine.load(
                    bucket.program,
                    {0: (memory, 0)},
                    priority=bucket.priority,
                    label=label,
                    kernels=bucket.kernels,
                ),
            )
        )
    return loaded


def start_states(buckets: Sequence[LoadedBucket], engine: _native.Engine) -> None:
    """State that starts as a slice of its bucket gets it, now that the bucket is filled."""
    for each in buckets:
        item = ITEM_BYTES[each.compiled.dtype]
        for name, (start, stop) in each.compiled.starts.items():
            window = engine.state(each.program, name)
            if window is not None and len(window):
                memoryview(window)[:] = memoryview(each.memory)[start * item : stop * item]


def carry_states(
    before: Sequence[LoadedBucket], after: Sequence[LoadedBucket], engine: _native.Engine, rank: int
) -> None:
    """State goes on into a new epoch: what has an element per element of its bucket by parameter, wherever that lies now;
    other state where the bucket has the same parameters. The rest starts anew."""
    elements: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
    whole: dict[tuple[str, tuple[str, ...]], np.ndarray[Any, Any]] = {}
    for bucket in before:
        for name, held in _states(bucket, engine, rank):
            whole[name, bucket.names] = held
            if len(held) == bucket.compiled.elements:
                elements |= {(name, each): part for each, part in _by_gradient(bucket, held)}
    for bucket in after:
        for name, held in _states(bucket, engine, rank):
            if len(held) == bucket.compiled.elements:
                for each, part in _by_gradient(bucket, held):
                    if (name, each) in elements:
                        part[:] = elements[name, each]
            elif (name, bucket.names) in whole and len(whole[name, bucket.names]) == len(held):
                held[:] = whole[name, bucket.names]


def _by_gradient(
    bucket: LoadedBucket, held: np.ndarray[Any, Any]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    ends = itertools.accumulate(each.elements for each in bucket.compiled.gradients)
    for each, end in zip(bucket.compiled.gradients, ends, strict=True):
        yield each.name, held[end - each.elements : end]


def _states(
    bucket: LoadedBucket, engine: _native.Engine, rank: int
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """By name: a row of bytes for each element."""
    for name, dtype, elements, kind, _ in bucket.compiled.program.buffers(rank):
        window = (
            engine.state(bucket.program, name) if kind in ("state", "shared_state") and elements else None
        )
        if window is not None:
            yield name, np.frombuffer(memoryview(window), np.uint8).reshape(-1, ITEM_BYTES[dtype])

"""Buckets: registered memory whose slices are the gradients (or parameters) themselves, each with its loaded program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec.structs import replace as replaced

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Bucket, Gathered, Owned, Part, Plan, Rule
from hocket.job.rendezvous import Job
from hocket.parameter_server.plan import among_workers
from hocket.planning.compile import bucket_program, halves, packed
from hocket.policy import bucketing
from hocket.policy.trace import Traced
from hocket.training.memory import helpers, host_programs
from hocket.training.memory.arenas import Arena, Run, arenas_of, arranged
from hocket.training.memory.device import Device, staged
from hocket.training.memory.gathered import CompiledRows, Rows, compile_rows

MakeArray = Callable[[_native.Memory, int, str, Sequence[int]], Any]
"""Signature of `Framework.array`."""


@dataclass(frozen=True)
class Values:
    """Second half of a bucket whose owners alone update it: the program that brings their values to all ranks after the step, and
    by rank, which elements of the bucket it owns."""

    program: _native.Program
    owned: tuple[tuple[int, int, int], ...]


class CompiledBucket(msgspec.Struct, frozen=True):
    """Gradients in the order in which they lie, and the program that reduces them. Lower `priority` goes first."""

    gradients: tuple[Gradient, ...]
    priority: int
    program: _native.Program
    kernels: Mapping[str, int] = {}
    """Address of each kernel of the user's, by name."""
    starts: Mapping[str, tuple[int, int]] = {}
    """State that starts as a slice of the bucket, by name: its first element and its end."""
    parts: tuple[Part, ...] = ()
    """Parts of gradients that travel; empty: all gradients as a whole."""
    values: Values | None = None
    """Second half if owners update the bucket; None: all ranks do."""
    number: int | None = None
    """Number of the program if not all ranks that train load it, since parameter servers hold the bucket."""
    helped: bool = False
    """True if ranks that do not train own some of the bucket and load the program, too."""
    rows: CompiledRows | None = None
    """Programs of a gradient that travels as rows."""
    cards: tuple[int, ...] | None = None
    """Cards of the hosts that its messages may use; None: all."""
    by_gradient: bool = False
    """True if the program works on each gradient, which may begin as soon as that is there."""

    @classmethod
    def traced(cls, bucket: bucketing.Bucket, traced: Traced) -> CompiledBucket:
        """Return the bucket that a policy's handlers make."""
        kernels = {name: each.address for name, each in traced.kernels.items() if each.address is not None}
        return cls(
            bucket.gradients,
            bucket.priority,
            traced.program,
            kernels,
            traced.starts,
            by_gradient=traced.by_gradient,
        )

    @property
    def dtype(self) -> str:
        return self.gradients[0].dtype

    @property
    def ranges(self) -> tuple[tuple[str, int, int], ...]:
        """Parameters with their first element and their end, in the order in which they lie."""
        if self.parts:
            return tuple((part.variable, part.start, part.stop or 0) for part in self.parts)
        return tuple((each.name, 0, each.elements) for each in self.gradients)

    @property
    def elements(self) -> int:
        return sum(stop - start for _, start, stop in self.ranges)

    def name_of(self, element: int) -> str:
        """Return the parameter that an element of the bucket belongs to."""
        end = 0
        for name, start, stop in self.ranges:
            end += stop - start
            if element < end:
                return name
        raise IndexError(element)


@dataclass(frozen=True, eq=False)
class Launch:
    """Program of a bucket in the engine, which reduces gradients in the memory of a `LoadedBucket`."""

    compiled: CompiledBucket
    program: int
    """Number of the program in the engine."""
    number: int = 0
    """Number of the bucket in its plan."""
    runs: tuple[Run, ...] = ()
    """Runs of that memory in which its elements lie."""
    values: int | None = None
    """Number of the program that brings owners' values."""
    rows: Rows | None = None
    """Rows of the gradient, if it travels as rows."""

    @property
    def names(self) -> list[str]:
        """Names of the gradients of which it has parts."""
        return [name for name, _, _ in self.compiled.ranges]

    def bound(self, memory: _native.Memory) -> dict[int, tuple[_native.Memory, int]]:
        """Return the buffers that its programs bind in memory that is laid out like that of the gradients."""
        item = ITEM_BYTES[self.compiled.dtype]
        return {at: (memory, start * item) for at, (start, _) in enumerate(self.runs)}


@dataclass(frozen=True, eq=False)
class LoadedBucket:
    """Gradients in memory. `elements` is the framework's array of all of it, `views` are those of each gradient. One launch reduces
    all of them, or several do where parts of a gradient travel in different buckets."""

    gradients: tuple[Gradient, ...]
    memory: _native.Memory
    elements: Any
    views: tuple[Any, ...]
    launches: tuple[Launch, ...]
    values: LoadedBucket | None = None
    """Parameters themselves in memory, laid out in the same way, if owners update some of them."""
    others: tuple[LoadedBucket, ...] = ()
    """Gradients in the slots after the first, where turns of the bucket overlap."""

    @property
    def slots(self) -> tuple[LoadedBucket, ...]:
        """Bucket in each of its slots."""
        return (self, *self.others)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gradients."""
        return tuple(each.name for each in self.gradients)

    @property
    def dtype(self) -> str:
        return self.gradients[0].dtype

    @property
    def served(self) -> bool:
        """True if parameter servers hold the bucket."""
        return any(launch.compiled.number is not None for launch in self.launches)

    @property
    def sparse(self) -> bool:
        """True if the gradient is made and left as a sparse one: the views are used if it turns out dense."""
        return any(launch.rows is not None and launch.rows.sparse for launch in self.launches)

    @property
    def program(self) -> int:
        """Number of its program in the engine, if there is only one."""
        (launch,) = self.launches
        return launch.program


def of_plan(
    plan: Plan,
    gradients: Mapping[str, Gradient],
    ready: Mapping[int, CompiledBucket] | None = None,
    *,
    job: Job | None = None,
) -> list[CompiledBucket]:
    """Return the buckets of a plan; `ready`: buckets that policies or servers make, by number, of the plan as `arranged`. With a
    `job`, ranks of a host share the cost of compiling the other programs. ProgramError: a program may not run."""
    whole = arranged(plan, gradients)
    plan = among_workers(whole)
    made: dict[int, CompiledBucket] = {}
    untraced: dict[int, list[int]] = {}
    for arena in arenas_of([bucket.parts for bucket in plan.buckets], gradients):
        for at in arena.numbers:
            bucket = plan.buckets[at]
            runs = [stop - start for start, stop in arena.runs(bucket.parts)]
            own = (ready or {}).get(at)
            if isinstance(bucket.route, Gathered):
                made[at] = _gathered(at, plan, arena.gradients[0])
                continue
            if own is None:
                if helpers.shared(whole, at):
                    program = bucket_program(at, whole, runs)
                    made[at] = CompiledBucket((), bucket.priority, program, helped=True)
                elif _owners_update(bucket):
                    made[at] = _halved(at, plan, runs)
                else:
                    untraced[at] = runs
                continue
            if len(runs) > 1 and own.number is None:
                own = replaced(own, program=packed(own.program, runs))
            made[at] = own
    programs = _programs(plan, untraced, job)
    for at, program in zip(untraced, programs, strict=True):
        made[at] = CompiledBucket((), plan.buckets[at].priority, program)
    return [
        replaced(
            made[at],
            gradients=tuple(gradients[part.variable] for part in bucket.parts),
            parts=bucket.parts,
            cards=bucket.cards,
        )
        for at, bucket in enumerate(plan.buckets)
    ]


def _programs(plan: Plan, lengths: Mapping[int, Sequence[int]], job: Job | None) -> Sequence[_native.Program]:
    """Return the programs of the buckets with these numbers, in order; `lengths`: of the pieces of memory in which each lies."""

    def make() -> list[_native.Program]:
        proofs = _native.Proofs()
        return [bucket_program(at, plan, own, proofs) for at, own in lengths.items()]

    if job is None:
        return make()
    buckets = [(at, own, plan.buckets[at]) for at, own in lengths.items()]
    anonymous = [
        (at, own, replaced(bucket, parts=(), rule=Rule(), priority=0, cards=None))
        for at, own, bucket in buckets
    ]
    return host_programs.compiled(job, msgspec.json.encode((plan.world, plan.workers, anonymous)), make)


def _gathered(at: int, plan: Plan, gradient: Gradient) -> CompiledBucket:
    rows = compile_rows(plan, at, gradient)
    return CompiledBucket((), plan.buckets[at].priority, rows.programs.gathered, rows=rows)


def _owners_update(bucket: Bucket) -> bool:
    return isinstance(bucket.route, Owned) and bucket.route.update == "owners"


def _halved(at: int, plan: Plan, runs: Sequence[int]) -> CompiledBucket:
    both = halves(plan, at, runs)
    values = Values(both.from_owners, both.parts)
    return CompiledBucket((), plan.buckets[at].priority, both.to_owners, values=values)


def assumed_backward(names: Iterable[str]) -> tuple[str, ...]:
    """Return the order in which backward probably makes gradients: the last registered first."""
    return tuple(reversed(list(names)))


def ordered(gradients: Mapping[str, Gradient], backward: Sequence[str] = ()) -> list[bucketing.Gradient]:
    """Return gradients as tracing knows them. `backward`: order in which it makes them; forward uses the reverse order."""
    count = len(gradients)
    order = {name: at for at, name in enumerate(backward or assumed_backward(gradients))}
    return [
        bucketing.Gradient(each.name, each.shape, each.dtype, order[each.name], count - 1 - order[each.name])
        for each in gradients.values()
    ]


def load(
    buckets: Sequence[CompiledBucket],
    engine: _native.Engine,
    array: MakeArray,
    *,
    epoch: int,
    rank: int,
    slots: Sequence[int] = (),
    before: Sequence[LoadedBucket] = (),
    device: Device | None = None,
    label: str | None = None,
    ends: str = "",
) -> list[LoadedBucket]:
    """Allocate memory for the gradients and load programs, in the same order on all ranks. Buckets on servers stay as `before`.

    `slots`: copies of its memory by bucket; default: one. Buckets that share memory have the same number. `device`: where `array`
    makes arrays. `label`: name of a single bucket in errors and traces; default: by number and epoch, before `ends`.
    """
    parts = [parts_of(bucket) for bucket in buckets]
    gradients = {each.name: each for bucket in buckets for each in bucket.gradients}
    kept = {tuple(launch.number for launch in each.launches): each for each in before if each.served}
    return [
        kept.get(arena.numbers)
        or _loaded(
            arena,
            buckets,
            engine,
            array,
            epoch=epoch,
            rank=rank,
            slots=slots[arena.numbers[0]] if slots else 1,
            device=device,
            label=label,
            ends=ends,
        )
        for arena in arenas_of(parts, gradients)
    ]


def again(bucket: LoadedBucket, array: MakeArray) -> LoadedBucket:
    """Return other arrays over the same memory, to tell by which array a gradient was set."""
    return replace(over(bucket.gradients, bucket.memory, array), launches=bucket.launches)


def parts_of(bucket: CompiledBucket) -> list[Part]:
    """Return the parts of gradients that travel, with their ends."""
    return [Part(variable=name, start=start, stop=stop) for name, start, stop in bucket.ranges]


def _loaded(
    arena: Arena,
    buckets: Sequence[CompiledBucket],
    engine: _native.Engine,
    array: MakeArray,
    *,
    epoch: int,
    rank: int,
    slots: int,
    device: Device | None,
    label: str | None,
    ends: str,
) -> LoadedBucket:
    size = sum(each.bytes for each in arena.gradients)
    memory, *more = [engine.allocate(size) for _ in range(slots)]
    values = None
    if any(buckets[number].values is not None for number in arena.numbers):
        values = over(arena.gradients, engine.allocate(size), array)
    launches = []
    for number in arena.numbers:
        bucket = buckets[number]
        of_epoch = f" of epoch {epoch}" if epoch else ""
        named = label or f"bucket {number}{of_epoch}{ends}"
        launch = Launch(bucket, 0, number, arena.runs(parts_of(bucket)) or ((0, 0),))
        rows = None if bucket.rows is None else Rows(bucket.rows, engine, rank, memory, device)
        chosen = helpers.number(number, epoch) if bucket.helped else bucket.number
        bound = launch.bound(memory) if rows is None else rows.bound
        # Rows are packed and added up on the host.
        own, numbered = staged(bucket.program, bound, device if rows is None else None)
        launch = replace(launch, compiled=replaced(bucket, program=own), rows=rows)
        program = engine.load(
            own,
            numbered(bound),
            priority=bucket.priority,
            label=named,
            kernels=bucket.kernels,
            number=chosen,
            others=[numbered(launch.bound(each)) for each in more],
            cards=bucket.cards,
            gradients=[stop - start for _, start, stop in bucket.ranges] if bucket.by_gradient else [],
        )
        if rows is not None:
            rows.load(priority=bucket.priority, label=named, cards=bucket.cards)
        back = None
        if bucket.values is not None and values is not None:
            program_back, numbered = staged(bucket.values.program, bound, device)
            back = engine.load(
                program_back,
                numbered(launch.bound(values.memory)),
                priority=bucket.priority,
                label=f"values of {named}",
                cards=bucket.cards,
            )
        launches.append(replace(launch, program=program, values=back))
    first, *others = (
        replace(over(arena.gradients, each, array), launches=tuple(launches)) for each in (memory, *more)
    )
    return replace(first, values=values, others=tuple(others))


def over(gradients: tuple[Gradient, ...], memory: _native.Memory, array: MakeArray) -> LoadedBucket:
    """Return the arrays of an arena's gradients over this memory."""
    starts = itertools.accumulate((each.bytes for each in gradients), initial=0)
    return LoadedBucket(
        gradients=gradients,
        memory=memory,
        elements=array(memory, 0, gradients[0].dtype, (sum(each.elements for each in gradients),)),
        views=tuple(
            array(memory, start, *each.as_array) for each, start in zip(gradients, starts, strict=False)
        ),
        launches=(),
    )


def unload(launches: Iterable[Launch], engine: _native.Engine) -> None:
    """Free the programs of launches for which no rank waits any more."""
    for each in launches:
        engine.unload(each.program)
        if each.values is not None:
            engine.unload(each.values)
        if each.rows is not None:
            each.rows.unload()


def launches_of(buckets: Iterable[LoadedBucket]) -> list[Launch]:
    """Return all launches, sorted by the numbers of their buckets."""
    return sorted((launch for bucket in buckets for launch in bucket.launches), key=lambda each: each.number)


def start_states(buckets: Sequence[LoadedBucket], engine: _native.Engine) -> None:
    """Copy slices of filled buckets into the state that starts as such a slice."""
    for each in buckets:
        item = ITEM_BYTES[each.dtype]
        for launch in each.launches:
            for name, (start, stop) in launch.compiled.starts.items():
                window = engine.state(launch.program, name)
                if window is not None and len(window):
                    memoryview(window)[:] = memoryview(each.memory)[start * item : stop * item]

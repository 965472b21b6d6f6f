"""Plan → programs: one per bucket, equal on all ranks, verified before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hocket._native import PassOptions, Program, Proofs, owned_program, verify_halves
from hocket.artefacts.algorithms import ALL_REDUCES
from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan, Traced
from hocket.errors import UsageError
from hocket.planning import traced
from hocket.planning.routes import by, members, owned_parts
from hocket.policy.topology import Topology


def programs(plan: Plan) -> list[Program]:
    """The program of each bucket, in the order of `plan.buckets`.

    Raises ProgramError, with the ops at fault, for a plan that would lose or double contributions, race or deadlock.
    """
    proofs = Proofs()
    return [bucket_program(index, plan, proofs=proofs) for index in range(len(plan.buckets))]


def bucket_program(
    index: int, plan: Plan, lengths: Sequence[int] = (), proofs: Proofs | None = None
) -> Program:
    """Mean of bucket `index` over all ranks.

    Args:
        index: position among the plan's buckets.
        plan: the job's plan.
        lengths: elements in each piece of memory that holds the bucket, if there are several.
        proofs: proofs of other buckets, which may also hold for this one.

    Raises ProgramError, with the ops at fault; UsageError: a bucket in several pieces cannot keep its contract.
    """
    plan = _of_its_ranks(plan, index)
    logical = _logical(plan, index)
    if len(lengths) > 1:
        logical = packed(logical, lengths)
    return verified(logical, _options(plan, index), proofs)


def packed(program: Program, lengths: Sequence[int]) -> Program:
    """Return the program for a bucket in pieces of these lengths. Raises UsageError if its contract does not allow pieces."""
    found = program.packed(lengths)
    if found is None:
        raise UsageError(
            f"{program.name}: what is promised of it as a whole cannot be kept of {len(lengths)} pieces"
        )
    return found


def proven(index: int, plan: Plan) -> Program:
    """Return a bucket's program, or the first half where its owners update it; both halves are verified."""
    if _owners_update(plan.buckets[index]):
        return halves(plan, index).to_owners
    return bucket_program(index, plan)


def unverified(index: int, plan: Plan, *, table: bool = True, topology: Topology | None = None) -> Program:
    """Return a bucket's program without verification, for predictions. Where owners update, both halves are in one program.
    `table`: see `rows`, for a bucket that travels as rows; `topology`: see `traced`, for one with a policy; default: a rank on each
    host."""
    if isinstance(plan.buckets[index].route, Traced):
        known = topology or Topology.even(world=plan.world)
        return traced.program(traced.marked(plan.buckets[index], {}), known)
    plan = _of_its_ranks(plan, index)
    bucket = plan.buckets[index]
    if isinstance(bucket.route, Gathered):
        return _gathered(plan, index, bucket.route, table=table).compiled(_options(plan, index))
    if _owners_update(bucket):
        route = msgspec.structs.replace(bucket.route, update="replicas")
        buckets = list(plan.buckets)
        buckets[index] = msgspec.structs.replace(bucket, route=route)
        plan = msgspec.structs.replace(plan, buckets=tuple(buckets))
    return _logical(plan, index).compiled(_options(plan, index))


@dataclass(frozen=True)
class Halves:
    """The programs of a bucket whose owners update its values, each over the bucket's elements.

    `to_owners` leaves the mean of the workers' gradients in each owner's part. `from_owners` sends each owner's part of the values
    to all workers, the same bits to all, and never rounded, whatever the bucket's codec. `parts`: (rank, start, stop) of the
    elements that each rank owns.
    """

    to_owners: Program
    from_owners: Program
    parts: tuple[tuple[int, int, int], ...]


def halves(plan: Plan, index: int, lengths: Sequence[int] = (), proofs: Proofs | None = None) -> Halves:
    """The two programs of bucket `index`, verified, also against one another. Arguments: see `bucket_program`.

    Raises UsageError unless the bucket has owners that update it, ProgramError like `programs`.
    """
    bucket = plan.buckets[index]
    made = {}
    for direction, (logical, options) in _logical_halves(plan, index).items():
        whole = packed(logical, lengths) if len(lengths) > 1 else logical
        made[direction] = verified(whole, options, proofs)
    verify_halves(made["to_owners"], made["from_owners"])
    ranks, owned = members(bucket, plan.workers), owned_parts(bucket, plan.workers)
    return Halves(**made, parts=tuple((ranks[owner], start, stop) for owner, start, stop in owned))


@dataclass(frozen=True)
class Rows:
    """The programs of a bucket that travels as rows. Both programs compute sums; the caller turns them into means.

    `gathered`: `Program.gathered` describes its buffers; a rank's block is at the rank's position in the bucket's order. `dense`:
    the sum of one bound buffer, for an iteration in which a rank has more rows than fit.
    """

    gathered: Program
    dense: Program


def rows(plan: Plan, index: int, *, table: bool) -> Rows:
    """The two programs of bucket `index`, verified.

    `table`: True if the rows are added up, to a gradient as long as the bucket. Without it the dense program has one more element
    per row, which counts the ranks that touched the row.

    Raises UsageError unless the bucket's route gathers, ProgramError like `programs`.

    >>> from hocket.artefacts.plan import Bucket
    >>> from hocket.planning.buckets import plan_of
    >>> route = Gathered(rows=2, row_elements=4)
    >>> bucket = Bucket(parts=(), elements=12, dtype="f32", route=route, order=(1, 0), priority=0)
    >>> made = rows(plan_of([bucket], 2, label=""), 0, table=False)
    >>> [each[:3] for each in made.gathered.buffers(0)]
    [('rows', 'f32', 16), ('numbers', 'i64', 4), ('counts', 'i64', 4)]
    >>> [each[1:3] for each in made.dense.buffers(0)][0]
    ('f32', 15)
    """
    bucket = plan.buckets[index]
    if not isinstance(bucket.route, Gathered):
        raise UsageError(f"plan: bucket {index} does not travel as rows")
    algorithm = bucket.route.algorithm
    return Rows(
        verified(_gathered(plan, index, bucket.route, table=table), _options(plan, index)),
        all_reduce_program(
            world=plan.world,
            elements=bucket.elements + (0 if table else bucket.elements // bucket.route.row_elements),
            dtype=bucket.dtype,
            op="sum",
            scale=1.0,
            route=AllReduce(algorithm=algorithm if algorithm in ALL_REDUCES else "ring"),
            order=bucket.order,
            chunk_bytes=bucket.chunk_bytes,
        ),
    )


def _gathered(plan: Plan, index: int, route: Gathered, *, table: bool) -> Program:
    bucket = plan.buckets[index]
    return Program.gathered(
        name=f"bucket.{index}.rows",
        world=plan.world,
        algorithm=route.algorithm,
        rows_max=route.rows,
        elements=route.row_elements,
        dtype=bucket.dtype,
        table=bucket.elements // route.row_elements if table else 0,
    )


def stages(plan: Plan, index: int) -> dict[str, Program]:
    """The program of bucket `index` after each pass, in order, keyed by the pass's name; where owners update, the key starts with
    `to_owners.` or `from_owners.`."""
    plan = _of_its_ranks(plan, index)
    if _owners_update(plan.buckets[index]):
        return {
            f"{direction}.{name}": program
            for direction, (logical, options) in _logical_halves(plan, index).items()
            for name, program in {"build": logical, **logical.stages(options)}.items()
        }
    logical = _logical(plan, index)
    return {"build": logical, **logical.stages(_options(plan, index))}


def all_reduce_program(
    *,
    world: int,
    elements: int,
    dtype: str,
    op: str,
    scale: float,
    route: AllReduce,
    order: Sequence[int] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Program:
    """`scale · op` over all ranks of one bound buffer, compiled and verified.

    >>> print(all_reduce_program(world=2, elements=4, dtype="f32", op="sum", scale=1.0,
    ...                          route=AllReduce(algorithm="ring")).name)
    all_reduce.ring
    """
    logical = Program.all_reduce(
        name=f"all_reduce.{route.algorithm}",
        world=world,
        elements=elements,
        dtype=dtype,
        op=op,
        scale=scale,
        algorithm=route.algorithm,
        sizes=route.sizes,
        record_non_finite=False,
    )
    return verified(logical, PassOptions(chunk_bytes=chunk_bytes, order=order))


def votes_program(hosts: Sequence[str], elements: int) -> Program:
    """Return a program for the elementwise maximum of all ranks' f32 elements: messages are small, so it minimizes rounds."""
    logical = Program.all_reduce(
        name="votes",
        world=len(hosts),
        elements=elements,
        dtype="f32",
        op="max",
        scale=1.0,
        algorithm="in_place" if len(set(hosts)) == 1 else "halving_doubling",
        sizes=(),
        record_non_finite=False,
    )
    return verified(logical, PassOptions(chunk_bytes=CHUNK_BYTES))


def broadcast_program(
    world: int,
    size_bytes: int,
    sources: Sequence[int] = (0,),
    targets: Sequence[int] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Program:
    """Return a program that sends the sources' bound buffers, which are equal, to the targets, an equal part from each source.
    Default targets: all other ranks."""
    logical = Program.broadcast(
        world=world,
        size_bytes=size_bytes,
        sources=sources,
        targets=[each for each in range(world) if each not in sources] if targets is None else targets,
        algorithm="halving_doubling",
    )
    return verified(logical, PassOptions(chunk_bytes=chunk_bytes))


def _of_its_ranks(plan: Plan, index: int) -> Plan:
    """The plan restricted to the workers, if ranks beyond the workers have no part in the bucket."""
    workers = len(plan.workers)
    if plan.workers != tuple(range(workers)) or max(plan.buckets[index].order, default=0) >= workers:
        return plan
    return msgspec.structs.replace(plan, world=workers)


def _owners_update(bucket: Bucket) -> bool:
    return isinstance(bucket.route, Owned) and bucket.route.update == "owners"


def _logical_halves(plan: Plan, index: int) -> dict[str, tuple[Program, PassOptions]]:
    bucket = plan.buckets[index]
    route = by(bucket, plan.workers)
    if isinstance(route, AllReduce) or not _owners_update(bucket):
        raise UsageError(f"plan: bucket {index} has one program: all ranks update its values")
    options = {"to_owners": _options(plan, index), "from_owners": _options(plan, index, plain=True)}
    return {
        direction: (
            owned_program(
                route,
                name=f"bucket.{index}.{direction}",
                world=plan.world,
                direction=direction,
                elements=bucket.elements,
                dtype=bucket.dtype,
                op="sum",
                scale=1.0 / len(plan.workers) if direction == "to_owners" else 1.0,
            ),
            own,
        )
        for direction, own in options.items()
    }


def _logical(plan: Plan, index: int) -> Program:
    bucket, scale = plan.buckets[index], 1.0 / len(plan.workers)
    if _owners_update(bucket):
        raise UsageError(
            f"plan: owners update the values of bucket {index}: it has two programs, with the optimizer between them\n"
            "hint: `halves` makes them"
        )
    if isinstance(bucket.route, Gathered):
        return _gathered(plan, index, bucket.route, table=True)
    route = by(bucket, plan.workers)
    if isinstance(route, AllReduce):
        return Program.all_reduce(
            name=f"bucket.{index}",
            world=plan.world,
            elements=bucket.elements,
            dtype=bucket.dtype,
            op="sum",
            scale=scale,
            algorithm=route.algorithm,
            sizes=route.sizes,
            record_non_finite=True,
        )
    return owned_program(
        route,
        name=f"bucket.{index}",
        world=plan.world,
        direction="both",
        elements=bucket.elements,
        dtype=bucket.dtype,
        op="sum",
        scale=scale,
    )


def _options(plan: Plan, index: int, *, plain: bool = False) -> PassOptions:
    """Options for the passes. `plain`: without the bucket's codec."""
    bucket = plan.buckets[index]
    order = members(bucket, plan.workers)
    return PassOptions(
        chunk_bytes=bucket.chunk_bytes,
        # Ranks without a part in the bucket play the logical ranks that have none.
        order=(*order, *(rank for rank in range(plan.world) if rank not in order)),
        codec=None if plain or bucket.codec == "none" else bucket.codec,
        codec_links=bucket.codec_links,
    )


def verified(logical: Program, options: PassOptions, proofs: Proofs | None = None) -> Program:
    """Compile a program by these passes and prove its contracts. ProgramError: one does not hold, with the ops at fault."""
    program = logical.compiled(options)
    (proofs or Proofs()).verify(program)
    return program

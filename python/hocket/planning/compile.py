"""Plan → programs: one per bucket, equal on all ranks, verified before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hocket._native import PassOptions, Program, Proofs, verify_halves
from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan
from hocket.errors import UsageError
from hocket.planning.routes import by, members


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
        index: among the plan's buckets.
        plan: of the job.
        lengths: of the pieces of memory that hold the bucket's elements, if there are several.
        proofs: of other buckets, which may also hold for this one.

    Raises ProgramError, with the ops at fault; UsageError: a bucket in several pieces cannot keep its contract.
    """
    logical = _logical(plan, index)
    if len(lengths) > 1:
        logical = packed(logical, lengths)
    return _proven(logical, _options(plan, index), proofs)


def packed(program: Program, lengths: Sequence[int]) -> Program:
    """The program for a bucket in pieces of these lengths. Raises UsageError if its contract does not allow pieces."""
    found = program.packed(lengths)
    if found is None:
        raise UsageError(
            f"{program.name}: what is promised of it as a whole cannot be kept of {len(lengths)} pieces"
        )
    return found


def proven(index: int, plan: Plan) -> Program:
    """The program of a bucket, or the first half where its owners update it: verified, as is the other half."""
    if _owners_update(plan.buckets[index]):
        return halves(plan, index).to_owners
    return bucket_program(index, plan)


def unverified(index: int, plan: Plan) -> Program:
    """The same without verification, for predictions. Of a bucket that its owners update, both halves in one."""
    bucket = plan.buckets[index]
    if _owners_update(bucket):
        route = msgspec.structs.replace(bucket.route, update="replicas")
        buckets = list(plan.buckets)
        buckets[index] = msgspec.structs.replace(bucket, route=route)
        plan = msgspec.structs.replace(plan, buckets=tuple(buckets))
    return _logical(plan, index).compiled(_options(plan, index))


@dataclass(frozen=True)
class Halves:
    """The programs of a bucket whose owners update its values, each over the bucket's elements.

    `to_owners` leaves the mean of the workers' gradients in each owner's part. `from_owners` brings what each owner has in its part
    of the values to all workers, the same bits on all. Its values are never rounded, whatever the bucket's codec. `parts`: by rank,
    which elements of the bucket it owns.
    """

    to_owners: Program
    from_owners: Program
    parts: tuple[tuple[int, int, int], ...]


def halves(plan: Plan, index: int, lengths: Sequence[int] = (), proofs: Proofs | None = None) -> Halves:
    """The two programs of bucket `index`, verified, also against one another. Arguments as of `bucket_program`.

    Raises UsageError unless the bucket's route is owners that update, ProgramError as `programs`.
    """
    bucket = plan.buckets[index]
    made = {}
    for direction, (logical, options) in _logical_halves(plan, index).items():
        whole = packed(logical, lengths) if len(lengths) > 1 else logical
        made[direction] = _proven(whole, options, proofs)
    verify_halves(made["to_owners"], made["from_owners"])
    route, ranks = by(bucket, plan.workers), members(bucket, plan.workers)
    parts = () if isinstance(route, AllReduce) else route.parts(bucket.elements)
    return Halves(**made, parts=tuple((ranks[owner], start, stop) for owner, start, stop in parts))


def gathered(plan: Plan, index: int, row_elements: int, *, table: bool) -> Program:
    """The program that gathers the rows of bucket `index`, verified; `Program.gathered` says what it binds.

    `row_elements`: length of a row of the variable. `table`: whether the rows are added up to a dense gradient. A rank's block
    is at its position in the bucket's order. Rows are summed; for means, scale them when filling the blocks.

    Raises UsageError unless the bucket's route gathers and consists of such rows, ProgramError as `programs`.

    >>> from hocket.artefacts.plan import Bucket
    >>> from hocket.planning.buckets import plan_of
    >>> rows = Bucket(parts=(), elements=12, dtype="f32", route=Gathered(rows=2), order=(1, 0), priority=0)
    >>> [each[:3] for each in gathered(plan_of([rows], 2, label=""), 0, 4, table=True).buffers(0)]
    [('rows', 'f32', 16), ('numbers', 'i64', 4), ('counts', 'i64', 4), ('table', 'f32', 12)]
    """
    bucket = plan.buckets[index]
    if not isinstance(bucket.route, Gathered):
        raise UsageError(f"plan: bucket {index} does not travel as rows")
    if row_elements < 1 or bucket.elements % row_elements:
        raise UsageError(f"plan: bucket {index} of {bucket.elements} elements has no rows of {row_elements}")
    logical = Program.gathered(
        name=f"bucket.{index}.rows",
        world=plan.world,
        algorithm=bucket.route.algorithm,
        rows_max=bucket.route.rows,
        elements=row_elements,
        dtype=bucket.dtype,
        table=bucket.elements // row_elements if table else 0,
    )
    return _proven(logical, _options(plan, index, plain=True))


def stages(plan: Plan, index: int) -> dict[str, Program]:
    """The program of bucket `index` after each pass, by the pass's name, in order; where owners update, `to_owners.` or
    `from_owners.` and that name."""
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
    return _proven(logical, PassOptions(chunk_bytes=chunk_bytes, order=order))


def votes_program(hosts: Sequence[str], elements: int) -> Program:
    """The largest of every rank's f32 elements, on all: small, so rounds count."""
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
    return _proven(logical, PassOptions(chunk_bytes=CHUNK_BYTES))


def broadcast_program(world: int, size_bytes: int, root: int = 0, chunk_bytes: int = CHUNK_BYTES) -> Program:
    """The bytes of `root`'s bound buffer to all ranks."""
    logical = Program.broadcast(world=world, size_bytes=size_bytes, root=root, algorithm="halving_doubling")
    return _proven(logical, PassOptions(chunk_bytes=chunk_bytes))


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
            route.program(
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
    return route.program(
        name=f"bucket.{index}",
        world=plan.world,
        direction="both",
        elements=bucket.elements,
        dtype=bucket.dtype,
        op="sum",
        scale=scale,
    )


def _options(plan: Plan, index: int, *, plain: bool = False) -> PassOptions:
    bucket = plan.buckets[index]
    order = members(bucket, plan.workers)
    return PassOptions(
        chunk_bytes=bucket.chunk_bytes,
        # Ranks without a part in the bucket play the logical ranks that have none.
        order=(*order, *(rank for rank in range(plan.world) if rank not in order)),
        codec=None if plain or bucket.codec == "none" else bucket.codec,
        codec_links=bucket.codec_links,
    )


def _proven(logical: Program, options: PassOptions, proofs: Proofs | None = None) -> Program:
    program = logical.compiled(options)
    (proofs or Proofs()).verify(program)
    return program

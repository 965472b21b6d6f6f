"""Plan → programs: one per bucket, the same on every rank, verified before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from hocket._native import PassOptions, Program
from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.artefacts.plan import AllReduce, Bucket, Plan
from hocket.planning.routes import all_reduce


def programs(plan: Plan) -> list[Program]:
    """The program of each bucket, in the order of `plan.buckets`.

    Raises ProgramError, with the ops at fault, for a plan that would lose, double, race or deadlock.
    """
    return [bucket_program(index, plan) for index in range(len(plan.buckets))]


def bucket_program(index: int, plan: Plan) -> Program:
    """Mean of bucket `index` over all ranks."""
    program = unverified(index, plan)
    program.verify()
    return program


def unverified(index: int, plan: Plan) -> Program:
    """The same, not proven: for predictions."""
    return _logical(plan, index).compiled(_options(plan.buckets[index]))


def stages(plan: Plan, index: int) -> dict[str, Program]:
    """The program of bucket `index` after each pass, by the pass's name, in order."""
    logical = _logical(plan, index)
    return {"build": logical, **logical.stages(_options(plan.buckets[index]))}


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


def _logical(plan: Plan, index: int) -> Program:
    bucket = plan.buckets[index]
    route = all_reduce(bucket)
    return Program.all_reduce(
        name=f"bucket.{index}",
        world=plan.world,
        elements=bucket.elements,
        dtype=bucket.dtype,
        op="sum",
        scale=1.0 / plan.world,
        algorithm=route.algorithm,
        sizes=route.sizes,
        record_non_finite=True,
    )


def _options(bucket: Bucket) -> PassOptions:
    return PassOptions(
        chunk_bytes=bucket.chunk_bytes,
        order=bucket.order,
        codec=None if bucket.codec == "none" else bucket.codec,
        codec_links=bucket.codec_links,
    )


def _proven(logical: Program, options: PassOptions) -> Program:
    program = logical.compiled(options)
    program.verify()
    return program

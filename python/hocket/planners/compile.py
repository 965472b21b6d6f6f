"""Plan → programs: one per bucket, the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence

from hocket._native import Program
from hocket.artefacts.plan import Plan, Synchroniser


def programs(plan: Plan) -> list[Program]:
    """The program of each bucket, in the order of `plan.buckets`."""
    return [bucket_program(index, plan) for index in range(len(plan.buckets))]


def bucket_program(index: int, plan: Plan) -> Program:
    """Mean of bucket `index` over all ranks."""
    bucket = plan.buckets[index]
    return all_reduce_program(
        world=plan.world,
        elements=bucket.elements,
        dtype=bucket.dtype,
        op="sum",
        scale=1.0 / plan.world,
        synchroniser=bucket.synchroniser,
        order=plan.order,
        name=f"bucket.{index}",
        record_non_finite=True,
    )


def all_reduce_program(
    *,
    world: int,
    elements: int,
    dtype: str,
    op: str,
    scale: float,
    synchroniser: Synchroniser,
    order: Sequence[int] | None = None,
    name: str = "all_reduce",
    record_non_finite: bool = False,
) -> Program:
    """`scale · op` over all ranks of one bound buffer, lowered, ordered, chunked and encoded."""
    program = Program.all_reduce(
        name=name,
        world=world,
        elements=elements,
        dtype=dtype,
        op=op,
        scale=scale,
        algorithm=synchroniser.algorithm,
        sizes=list(synchroniser.sizes),
        record_non_finite=record_non_finite,
    ).lower()
    if order is not None:
        program = program.relabel(list(order))
    program = program.chunk(synchroniser.chunk_bytes)
    if synchroniser.codec != "none":
        program = program.encode(list(synchroniser.codec_links), synchroniser.codec)
    program.verify()
    return program


def broadcast_program(world: int, size_bytes: int, root: int = 0, chunk_bytes: int = 262_144) -> Program:
    """The bytes of `root`'s bound buffer to all ranks."""
    return Program.broadcast(world=world, size_bytes=size_bytes, root=root).chunk(chunk_bytes)

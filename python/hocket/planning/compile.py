"""Plan → programs: one per bucket, the same on every rank, verified before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from hocket._native import Program
from hocket.artefacts.plan import Plan, Synchroniser

VOTES_CHUNK_BYTES = 262_144


def programs(plan: Plan) -> list[Program]:
    """The program of each bucket, in the order of `plan.buckets`.

    Raises ProgramError, with the ops at fault, for a plan that would lose, double, race or deadlock.
    """
    return [bucket_program(index, plan) for index in range(len(plan.buckets))]


def bucket_program(index: int, plan: Plan) -> Program:
    """Mean of bucket `index` over all ranks."""
    program = list(stages(plan, index).values())[-1]
    program.verify()
    return program


def stages(plan: Plan, index: int) -> dict[str, Program]:
    """The program of bucket `index` after each pass, by the pass's name, in order."""
    bucket = plan.buckets[index]
    logical = Program.all_reduce(
        name=f"bucket.{index}",
        world=plan.world,
        elements=bucket.elements,
        dtype=bucket.dtype,
        op="sum",
        scale=1.0 / plan.world,
        algorithm=bucket.synchroniser.algorithm,
        sizes=bucket.synchroniser.sizes,
        record_non_finite=True,
    )
    return _stages(logical, bucket.synchroniser, plan.order)


def all_reduce_program(
    *,
    world: int,
    elements: int,
    dtype: str,
    op: str,
    scale: float,
    synchroniser: Synchroniser,
    order: Sequence[int] | None = None,
) -> Program:
    """`scale · op` over all ranks of one bound buffer, compiled and verified.

    >>> print(all_reduce_program(world=2, elements=4, dtype="f32", op="sum", scale=1.0,
    ...                          synchroniser=Synchroniser(algorithm="ring")).name)
    all_reduce.ring
    """
    logical = Program.all_reduce(
        name=f"all_reduce.{synchroniser.algorithm}",
        world=world,
        elements=elements,
        dtype=dtype,
        op=op,
        scale=scale,
        algorithm=synchroniser.algorithm,
        sizes=synchroniser.sizes,
        record_non_finite=False,
    )
    program = list(_stages(logical, synchroniser, range(world) if order is None else order).values())[-1]
    program.verify()
    return program


def votes_program(hosts: Sequence[str], elements: int) -> Program:
    """The largest of every rank's f32 elements, on all: small, so rounds count."""
    program = Program.all_reduce(
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
    program = program.lower().chunk(VOTES_CHUNK_BYTES)
    program.verify()
    return program


def broadcast_program(world: int, size_bytes: int, root: int = 0, chunk_bytes: int = 262_144) -> Program:
    """The bytes of `root`'s bound buffer to all ranks."""
    whole = Program.broadcast(world=world, size_bytes=size_bytes, root=root, algorithm="halving_doubling")
    program = whole.lower().chunk(chunk_bytes)
    program.verify()
    return program


def _stages(logical: Program, synchroniser: Synchroniser, order: Sequence[int]) -> dict[str, Program]:
    made = {"build": logical}
    made["lower"] = made["build"].lower()
    made["relabel"] = made["lower"].relabel(order)
    made["chunk"] = made["relabel"].chunk(synchroniser.chunk_bytes)
    if synchroniser.codec != "none":
        made["encode"] = made["chunk"].encode(synchroniser.codec_links, synchroniser.codec)
    return made

"""A program of one collective over all ranks of a job, for benchmarks and `hocket tune`."""

from __future__ import annotations

from collections.abc import Sequence

from hocket._native import Builder, PassOptions, Program

ROOT = 0
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def collective_program(
    what: str,
    group: Sequence[int],
    *,
    elements: int,
    dtype: str,
    algorithm: str,
    numbers: Sequence[int],
    chunk_bytes: int,
) -> Program:
    """Make the program, compiled like a policy's program, and verified.

    `group`: all ranks in the order of their parts; reduces with sum; the root is rank `ROOT`.

    Buffer 0 of each rank is bound; an all-to-all writes its result to buffer 1.

    >>> collective_program("all_reduce", [0, 1], elements=8, dtype="f32", algorithm="ring", numbers=(), chunk_bytes=64).name
    'all_reduce'
    """
    builder = Builder(what, len(group))
    for rank in range(len(group)):
        names = ("from", "to") if what == "all_to_all" else ("bucket",)
        places = [(builder.buffer(rank, name, dtype, elements, "bound"), 0, elements) for name in names]
        builder.collective(
            rank,
            what,
            places[0],
            members=list(group),
            op="sum",
            scale=1.0,
            algorithm=algorithm,
            numbers=tuple(numbers),
            root=ROOT if what in ROOTED else None,
            dst=places[1] if what == "all_to_all" else None,
            source=None,
        )
    if what == "all_reduce":
        builder.ensure_all_reduce(0, list(range(len(group))), "sum", 1.0)
    program = builder.finish().compiled(PassOptions(chunk_bytes=chunk_bytes))
    program.verify()
    return program


def by_place(hosts: Sequence[str], racks: Sequence[str]) -> list[int]:
    """All ranks, sorted so that ranks of a rack and of a host are adjacent."""
    return sorted(range(len(hosts)), key=lambda rank: (racks[rank], hosts[rank]))

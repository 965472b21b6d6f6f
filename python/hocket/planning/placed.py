"""Programs of some ranks of a job: a program is made for these ranks alone, as if there were no others, and then placed."""

from __future__ import annotations

from collections.abc import Sequence

from hocket._native import PassOptions, Program

WHOLE_BYTES = 1 << 40
"""Size of a chunk that splits nothing: the program has its chunks already."""


def placed(program: Program, ranks: Sequence[int], world: int) -> Program:
    """Return a compiled program in which `ranks[i]` of a job of `world` ranks plays rank `i`, and the other ranks do nothing.

    Not verified. ProgramError: the ranks are not different ranks of the job.

    >>> from hocket.artefacts.plan import AllReduce
    >>> from hocket.planning.compile import all_reduce_program
    >>> pair = all_reduce_program(world=2, elements=4, dtype="f32", op="sum", scale=0.5, route=AllReduce(algorithm="ring"))
    >>> placed(pair, [3, 1], 4).pairs()
    [(1, 3), (3, 1)]
    """
    if list(ranks) == list(range(world)):
        return program
    head, _, rest = str(program).partition("\n")
    name, _, _ = head.rpartition(" world ")
    idle = "".join(f"rank {rank} {{\n}}\n" for rank in range(program.world, world))
    others = [rank for rank in range(world) if rank not in ranks]
    widened = Program.parse(f"{name} world {world}\n{rest}{idle}")
    return widened.compiled(PassOptions(chunk_bytes=WHOLE_BYTES, order=[*ranks, *others]))

"""Programs that copy parts of memory from rank to rank, as they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from hocket._native import PassOptions, Program
from hocket.artefacts.chunks import CHUNK_BYTES


class Copy(NamedTuple):
    """Elements of a rank's memory that another rank gets, and where it gets them."""

    source: int
    start: int
    target: int
    at: int
    elements: int


def copies_program(
    name: str,
    copies: Sequence[Copy],
    *,
    lengths: Sequence[int],
    dtype: str,
    chunk_bytes: int = CHUNK_BYTES,
) -> Program:
    """Return a program of these copies, verified. Each rank binds one buffer, of `lengths` elements by rank; targets do not overlap
    one another, nor what is copied from them.

    >>> made = copies_program("copies", [Copy(0, 2, 1, 0, 4)], lengths=[8, 4], dtype="f32")
    >>> [each["op"] for each in (*made.ops(0), *made.ops(1))]
    ['send', 'recv']
    """
    ops: dict[int, list[str]] = defaultdict(list)
    tags: Counter[tuple[int, int]] = Counter()
    for source, start, target, at, elements in copies:
        tag = tags[source, target]
        tags[source, target] += 1
        ops[source].append(f"send %0[{start}:{start + elements}] as {dtype} to {target} tag {tag}")
        ops[target].append(f"recv %0[{at}:{at + elements}] as {dtype} store from {source} tag {tag}")
    lines = [f'program "{name}" world {len(lengths)}']
    for rank, length in enumerate(lengths):
        lines += [f"rank {rank} {{", f'  %0 = bound {dtype} {length} "parts"']
        lines += [f"  {number}: {op}" for number, op in enumerate(ops[rank])]
        lines.append("}")
    program = Program.parse("\n".join(lines) + "\n").compiled(PassOptions(chunk_bytes=chunk_bytes))
    program.verify()
    return program

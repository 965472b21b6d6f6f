"""Sparse gradients that travel as rows: each rank's own rows, and the sums of the rows of all ranks.

A rank puts its part of the mean into its block of the bucket's memory: the rows of its gradient, divided by the number of ranks. A
sparse gradient ends as the sparse one of all ranks' rows, each once; for a dense one the program adds the rows up in place.

More rows than the plan's bound do not fit. A rank that has more sends none, and votes (`votes.py`). When votes are counted, every
rank launches the bucket's dense program, for this iteration alone. Both programs are launched equally often on all ranks, whatever
they find, so nobody waits for a launch that does not come.

A rank's own rows stay as they are while others come. So where a loss undoes a step, remaining ranks put them into new blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hocket import _native
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Gathered, Plan
from hocket.errors import PeerError
from hocket.planning import compile as programs
from hocket.training.memory.device import Device, write

log = logging.getLogger("hocket.training")

Numbers = npt.NDArray[np.int64]
"""Numbers of rows, ascending, each once."""

RowBytes = npt.NDArray[np.uint8]
"""Bytes of rows: shape (rows, bytes of each)."""

ONE: dict[str, np.generic] = {
    "f64": np.float64(1),
    "f32": np.float32(1),
    "f16": np.float16(1),
    "bf16": np.uint16(0x3F80),
}
"""1 by element type; NumPy has the bits of a bf16 alone."""
NUMBER_BYTES = COUNT_BYTES = 8
COUNTS = 2
"""Counts in a block: its rows, and the elements of these."""


class HasRows(Protocol):
    """Part of a framework that rows need."""

    def rows(self, name: str, factor: float) -> tuple[Numbers, RowBytes]:
        """Return the rows of the gradient of `name` that are not zero, or that a batch touched if it is sparse: copies, multiplied
        by `factor`. A gradient that does not exist has none."""

    def set_rows(self, name: str, numbers: Numbers, rows: RowBytes) -> None:
        """Set the rows of the gradient of `name`, which has no others. The gradient becomes sparse, or stays dense where this
        backward made it so. `rows` is the framework's from now on."""


@dataclass(frozen=True)
class CompiledRows:
    """Bucket that travels as rows. `order[block]` is the rank that fills a block."""

    gradient: Gradient
    order: tuple[int, ...]
    rows_max: int
    programs: programs.Rows

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.gradient.bytes // max(1, self.gradient.rows)

    @property
    def row_elements(self) -> int:
        """Elements of one row."""
        return self.gradient.elements // max(1, self.gradient.rows)


def compile_rows(plan: Plan, index: int, gradient: Gradient) -> CompiledRows:
    """Compile bucket `index`, which is `gradient`. UsageError: it does not travel as rows; ProgramError: a program may not run."""
    bucket = plan.buckets[index]
    made = programs.rows(plan, index, table=not gradient.sparse)
    bound = bucket.route.rows if isinstance(bucket.route, Gathered) else 0
    return CompiledRows(gradient, bucket.order, bound, made)


class Rows:
    """Rows of one bucket on this rank. `memory` is that of the gradient as a dense one."""

    def __init__(
        self,
        compiled: CompiledRows,
        engine: _native.Engine,
        rank: int,
        memory: _native.Memory,
        device: Device | None,
    ) -> None:
        """Allocate blocks of all ranks. The system provides their pages when rows first come. `device`: where the gradient is; rows
        are packed and added up on the host."""
        self.compiled = compiled
        self.gradient = compiled.gradient
        self.packed = False
        """True if this backward's rows are in the block."""
        self._engine = engine
        self._told = rank != 0
        world, bound, own = len(compiled.order), compiled.rows_max, compiled.gradient
        self._factor = 1.0 / world
        self._block = compiled.order.index(rank)
        rows = engine.allocate(world * bound * compiled.row_bytes)
        numbers = engine.allocate(world * bound * NUMBER_BYTES)
        counts = engine.allocate(world * COUNTS * COUNT_BYTES)
        self.bound = {0: (rows, 0), 1: (numbers, 0), 2: (counts, 0)}
        """Buffers of the program that gathers."""
        self._rows = _bytes(rows).reshape(world, bound, compiled.row_bytes)
        self._numbers = np.frombuffer(memoryview(numbers), np.int64).reshape(world, bound)
        self._counts = np.frombuffer(memoryview(counts), np.int64).reshape(world, COUNTS)
        self._own: tuple[Numbers, RowBytes] = (
            np.empty(0, np.int64),
            np.empty((0, compiled.row_bytes), np.uint8),
        )
        self._device = device
        self._touched: npt.NDArray[Any] | None = None
        """Number of ranks that touched each row, of a sparse gradient in a dense iteration."""
        if own.sparse:
            memory = engine.allocate(own.bytes + own.rows * own.item_bytes)
            self._touched = np.frombuffer(memoryview(memory), ONE[own.dtype].dtype, offset=own.bytes)
        else:
            self.bound[3] = (memory, 0)
        self._memory = memory
        self._dense = _bytes(memory)[: own.bytes].reshape(own.rows, compiled.row_bytes)
        self.program = -1
        """Number of the dense program in the engine."""

    def load(self, *, priority: int, label: str, cards: Sequence[int] | None) -> None:
        """Load the dense program, after the one that gathers."""
        program = self.compiled.programs.dense
        self.program = self._engine.load(
            program, {0: (self._memory, 0)}, priority=priority, label=f"{label}, dense", cards=cards
        )

    def unload(self) -> None:
        """Unload the dense program."""
        self._engine.unload(self.program)

    @property
    def sparse(self) -> bool:
        return self.gradient.sparse

    def pack(self, framework: HasRows) -> None:
        """Fill the block with the gradient as it is now."""
        numbers, rows = self._own = framework.rows(self.gradient.name, self._factor)
        count = 0 if self.exceeded else len(numbers)
        self._rows[self._block, :count] = rows[:count]
        self._numbers[self._block, :count] = numbers[:count]
        self._counts[self._block] = count, count * self.compiled.row_elements
        self.packed = True

    @property
    def exceeded(self) -> bool:
        """True if the gradient has more rows on this rank than travel."""
        return self.touched > self.compiled.rows_max

    @property
    def touched(self) -> int:
        """Number of rows that the gradient had on this rank when it was packed last."""
        return len(self._own[0])

    def begin_dense(self, iteration: int) -> None:
        """Reduce the whole gradient in this iteration, on all ranks. Its rows were gathered before, for nothing."""
        numbers, rows = self._own
        self._dense[:] = 0
        self._dense[numbers] = rows
        if self._touched is not None:
            self._touched[:] = 0
            self._touched[numbers] = ONE[self.gradient.dtype]
        self._engine.launch(self.program)
        if not self._told:
            log.warning(
                "iteration %d: the gradient of `%s` has more than %d rows on some rank, and is reduced as a dense one; said once",
                iteration,
                self.gradient.name,
                self.compiled.rows_max,
            )
            self._told = True

    def finish(self, framework: HasRows, *, dense: bool) -> None:
        """Make the gradient the mean of all ranks, whose rows are here. `dense`: after `begin_dense`, whose program is complete."""
        if self.sparse:
            numbers, rows = self._of_table() if dense else self._merged()
            framework.set_rows(self.gradient.name, numbers, rows)
        else:
            write(self._device, [self._memory])

    def _of_table(self) -> tuple[Numbers, RowBytes]:
        touched = _bytes(self._memory)[self._dense.size :].reshape(self.gradient.rows, -1)
        numbers = np.flatnonzero(touched.any(axis=1))
        return numbers, self._dense[numbers]

    def _merged(self) -> tuple[Numbers, RowBytes]:
        """Return the rows of all blocks, each number once; added in the order of blocks, so with the same bits on all ranks.

        PeerError: rows of another rank are not in this table.
        """
        counts = [self._count_of(block) for block in range(len(self.compiled.order))]
        parts = [self._numbers[block, :count] for block, count in enumerate(counts)]
        numbers, places = np.unique(np.concatenate(parts), return_inverse=True)
        by_block = np.split(places.astype(np.int64).reshape(-1), np.cumsum(counts)[:-1])
        sums = np.zeros((len(numbers), self.compiled.row_bytes), np.uint8)
        for block, (count, where) in enumerate(zip(counts, by_block, strict=True)):
            if count and sums.size:
                _native.run_kernel(
                    f"scatter_add_rows.{self.gradient.dtype}",
                    None,
                    [self._rows[block, :count].data, where.data, np.array([count]).data],
                    [sums.data],
                    [float(self.compiled.row_elements)],
                )
        return numbers, sums

    def _count_of(self, block: int) -> int:
        """Return the number of rows in a block that another rank has filled."""
        count, elements = map(int, self._counts[block])
        numbers = self._numbers[block, : max(count, 0)]
        sound = 0 <= count <= self.compiled.rows_max and elements == count * self.compiled.row_elements
        if not sound or (count and not 0 <= numbers.min() <= numbers.max() < self.gradient.rows):
            rank = self.compiled.order[block]
            raise PeerError(
                f"rank {rank} sent {count} rows of {elements} elements for `{self.gradient.name}`, or rows beyond its "
                f"{self.gradient.rows}\nhint: HOCKET_CHECKSUM=1 shows whether the network damages data",
                rank=rank,
                why="violation",
            )
        return count


def dense_names(buckets: Sequence[Rows]) -> list[str]:
    """Return the names of gradients that have too many rows on this rank."""
    return [each.gradient.name for each in buckets if each.exceeded]


def _bytes(memory: _native.Memory) -> npt.NDArray[np.uint8]:
    return np.frombuffer(memoryview(memory), np.uint8)

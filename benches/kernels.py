"""Bandwidth of kernels as a share of the memory bandwidth of this machine.

Bytes that count are those that a kernel must read and those that it must write, each once. Next to each kernel runs `memcpy`
over as many bytes in all, in turns, and two shares are given:

- of `memcpy`: its source and its destination, once each. A kernel that also reads its destination can exceed one: `memcpy`
  makes the CPU read each line that it overwrites, and these reads do not count here.
- of bandwidth: the same with those reads counted, half as much again. It is the rate at which the memory works while `memcpy`
  runs, and the bar that kernels are held to: a kernel gets no credit for reads that it need not cause. If a C library's
  `memcpy` avoids them, it is asked for more than the memory can do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from hocket import _native
from hocket.tools.bench.alternate import alternate

FOOTPRINTS_BYTES = (128 << 10, 128 << 20)
"""Sizes of all operands together: within the second-level cache, and far beyond it."""

TURN_BYTES_MIN = 16 << 20
"""Least bytes of one turn, so that the cost of calls from Python does not show."""

LINE_BYTES = 64
BLOCK_ELEMENTS = 256
"""Block length of int8 quantisation."""

UNIT_BYTES = 4 * BLOCK_ELEMENTS
"""Operands are whole numbers of blocks."""


class Kernel(Struct, frozen=True):
    """A kernel and how large its operands are beside each other."""

    title: str
    name: str
    inputs: Sequence[float]
    outputs: Sequence[float]
    reads_output: bool = False
    constants: Sequence[float] = ()


KERNELS = (
    Kernel("copy", "copy", [1], [1]),
    Kernel("f32 += f32", "sum.f32", [1], [1], reads_output=True),
    Kernel("f32 += f16", "sum.f32.f16", [0.5], [1], reads_output=True),
    Kernel("f32 += bf16", "sum.f32.bf16", [0.5], [1], reads_output=True),
    Kernel("f16 += f16", "sum.f16", [1], [1], reads_output=True),
    Kernel("bf16 += bf16", "sum.bf16", [1], [1], reads_output=True),
    Kernel("f64 += f64", "sum.f64", [1], [1], reads_output=True),
    Kernel("i32 += i32", "sum.i32", [1], [1], reads_output=True),
    Kernel("f32 max= f32", "max.f32", [1], [1], reads_output=True),
    Kernel("f32 = sum of 4 f32", "sum_many.f32", [1, 1, 1, 1], [1]),
    Kernel("f16 = sum of 4 f16", "sum_many.f16", [1, 1, 1, 1], [1]),
    Kernel("bf16 = sum of 4 bf16", "sum_many.bf16", [1, 1, 1, 1], [1]),
    Kernel("f64 = sum of 4 f64", "sum_many.f64", [1, 1, 1, 1], [1]),
    Kernel("f16 = f32", "cast.f16.f32", [1], [0.5]),
    Kernel("bf16 = f32", "cast.bf16.f32", [1], [0.5]),
    Kernel("f32 = f16", "cast.f32.f16", [0.5], [1]),
    Kernel("f32 = bf16", "cast.f32.bf16", [0.5], [1]),
    Kernel("f32 *= constant", "scale.f32", [], [1], reads_output=True, constants=[0.999]),
    Kernel("f32 to what f16 holds", "round.f32.f16", [], [1], reads_output=True),
    Kernel("f32 scanned for NaN", "first_non_finite.f32", [1], []),
    Kernel(
        "int8 blocks = f32",
        "quantise.int8",
        [1],
        [0.25, 1 / BLOCK_ELEMENTS],
        constants=[float(BLOCK_ELEMENTS)],
    ),
    Kernel(
        "f32 += int8 blocks",
        "dequantise_add.int8",
        [0.25, 1 / BLOCK_ELEMENTS],
        [1],
        reads_output=True,
        constants=[float(BLOCK_ELEMENTS)],
    ),
    Kernel("largest 1/128 of f32", "top_k.f32", [1], [1 / 128, 1 / 128, 0]),
)


class Rate(Struct, frozen=True, kw_only=True):
    """Medians over rounds: bytes per second of a kernel whose operands have `footprint_bytes` together, and of `memcpy` beside it;
    shares are medians of each round's."""

    title: str
    name: str
    footprint_bytes: int
    byte_per_s: float
    memcpy_byte_per_s: float
    of_memcpy: float
    of_bandwidth: float


def measure(
    *,
    footprints_bytes: Sequence[int] = FOOTPRINTS_BYTES,
    rounds: int = 15,
    kernels: Sequence[Kernel] = KERNELS,
) -> Iterator[Rate]:
    """One rate after the other, by footprint; operands hold small random numbers in every type of float."""
    for footprint_bytes in footprints_bytes:
        for kernel in kernels:
            yield _rate(kernel, footprint_bytes, rounds)


def _rate(kernel: Kernel, footprint_bytes: int, rounds: int) -> Rate:
    shares = sum(kernel.inputs) + sum(kernel.outputs)
    unit_bytes = int(footprint_bytes / shares) // UNIT_BYTES * UNIT_BYTES
    inputs = [_array(each, unit_bytes) for each in kernel.inputs]
    outputs = [_array(each, unit_bytes) for each in kernel.outputs]
    moved_bytes = unit_bytes * (shares + sum(kernel.outputs) * kernel.reads_output)
    source, copy = _array(0.5, footprint_bytes), _array(0.5, footprint_bytes)
    times = max(1, TURN_BYTES_MIN // footprint_bytes)
    series_s = alternate(
        {
            "kernel": lambda: _native.repeat_kernel(kernel.name, inputs, outputs, kernel.constants, times),
            "memcpy": lambda: _native.repeat_kernel("memcpy", [source], [copy], [], times),
        },
        rounds=rounds,
    )
    rates = [moved_bytes * times / time_s for time_s in series_s["kernel"]]
    copies = [footprint_bytes * times / time_s for time_s in series_s["memcpy"]]
    of_memcpy = statistics.median(rate / copy for rate, copy in zip(rates, copies, strict=True))
    return Rate(
        title=kernel.title,
        name=kernel.name,
        footprint_bytes=footprint_bytes,
        byte_per_s=statistics.median(rates),
        memcpy_byte_per_s=statistics.median(copies),
        of_memcpy=of_memcpy,
        of_bandwidth=of_memcpy / 1.5,
    )


def _array(share: float, unit_bytes: int) -> memoryview:
    """An operand at the start of a line, as registered memory is; no less than the eight bytes of a count."""
    size_bytes = max(8, int(share * unit_bytes))
    memory = np.empty(size_bytes + LINE_BYTES, np.uint8)
    array = memory[-memory.ctypes.data % LINE_BYTES :][:size_bytes]
    # Small, positive and normal as f16, bf16, f32 and f64, and with few equal ones.
    words = np.random.default_rng(7).integers(0x2000, 0x2800, 1 << 16, dtype=np.uint16)
    array[:] = np.resize(words.view(np.uint8), size_bytes)
    return array.data

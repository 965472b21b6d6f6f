"""Built-in kernels of whole slices in NumPy: the definition of `crates/kernels/src/named`.

A kernel gets its inputs, its outputs (which it writes, or updates) and its constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hocket.errors import ProgramError
from hocket.reference import ops
from hocket.reference.ops import Array

Kernel = Callable[[Sequence[Array], Sequence[Array], Sequence[float]], None]


def sub(inputs: Sequence[Array], outputs: Sequence[Array], _constants: Sequence[float]) -> None:
    """`out = left - right`."""
    outputs[0][:] = inputs[0] - inputs[1]


def mul(inputs: Sequence[Array], outputs: Sequence[Array], _constants: Sequence[float]) -> None:
    """`out = left · right`."""
    outputs[0][:] = inputs[0] * inputs[1]


def clamp(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """`out = in` between two constants."""
    outputs[0][:] = np.clip(inputs[0], *np.asarray(constants, inputs[0].dtype))


def fill(_inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """`out` = the constant."""
    outputs[0][:] = constants[0]


def top_k(inputs: Sequence[Array], outputs: Sequence[Array], _constants: Sequence[float]) -> None:
    """(in) → (values, indices, count): the largest magnitudes that are not zero, as many as fit, in the order of indices."""
    values, (kept, indices, count) = inputs[0], outputs
    largest = np.argsort(-np.abs(values), kind="stable")[: min(len(kept), len(values))]
    chosen = np.sort(largest[values[largest] != 0])
    kept[: len(chosen)] = values[chosen]
    indices[: len(chosen)] = chosen
    count[0] = len(chosen)


def scatter_add(inputs: Sequence[Array], outputs: Sequence[Array], _constants: Sequence[float]) -> None:
    """(values, indices, count) → dense: adds the first `count` values at their indices."""
    values, indices, count = inputs
    taken = _indices(indices, count, outputs[0])
    np.add.at(outputs[0], taken, values[: len(taken)])


def clear_at(inputs: Sequence[Array], outputs: Sequence[Array], _constants: Sequence[float]) -> None:
    """(indices, count) → dense: zero at the first `count` indices."""
    indices, count = inputs
    outputs[0][_indices(indices, count, outputs[0])] = 0


def quantise(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(in) → (codes, scales): a step is a 127th of the block's largest magnitude."""
    values, (codes, scales), block = inputs[0], outputs, int(constants[0])
    for at in range(len(scales)):
        part = values[at * block : (at + 1) * block]
        largest = np.float32(np.max(np.abs(part), initial=np.float32(0)))
        scales[at] = largest / np.float32(127)
        steps = np.float32(127) / largest if largest > 0 else np.float32(0)
        codes[at * block : (at + 1) * block] = np.rint(part * steps).astype(np.int8)


def dequantise(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(codes, scales) → out."""
    codes, scales = inputs
    outputs[0][:] = codes.astype(np.float32) * np.repeat(scales, int(constants[0]))[: len(codes)]


def dequantise_add(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(codes, scales) → out, added to what is there."""
    codes, scales = inputs
    outputs[0][:] += codes.astype(np.float32) * np.repeat(scales, int(constants[0]))[: len(codes)]


def quantise_int4(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(in) → (codes, scales): a step is a seventh of the block's largest magnitude; two codes a byte, the first one lower."""
    values, (codes, scales), block = inputs[0], outputs, int(constants[0])
    nibbles = np.zeros(2 * len(codes), np.uint8)
    for at in range(len(scales)):
        part = values[at * block : (at + 1) * block]
        largest = np.float32(np.max(np.abs(part), initial=np.float32(0)))
        scales[at] = largest / np.float32(7)
        steps = np.float32(7) / largest if largest > 0 else np.float32(0)
        nibbles[at * block : at * block + len(part)] = (
            np.rint(part * steps).astype(np.int8).view(np.uint8) & 15
        )
    codes[:] = nibbles[::2] | nibbles[1::2] << 4


def _of_int4(inputs: Sequence[Array], elements: int, constants: Sequence[float]) -> Array:
    codes, scales = inputs
    numbers = np.stack([codes << 4, codes & 0xF0], axis=1).reshape(-1)[:elements].view(np.int8) >> 4
    values: Array = numbers.astype(np.float32) * np.repeat(scales, int(constants[0]))[:elements]
    return values


def dequantise_int4(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(codes, scales) → out."""
    outputs[0][:] = _of_int4(inputs, len(outputs[0]), constants)


def dequantise_add_int4(
    inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]
) -> None:
    """(codes, scales) → out, added to what is there."""
    outputs[0][:] += _of_int4(inputs, len(outputs[0]), constants)


def top_k_int2(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(in) → (places, codes, scales): of each chunk the largest magnitudes, as a place of 16 bits, and a sign and one of two
    magnitudes in 2: means of those above and up to half of the largest."""
    values, (places, codes, scales) = inputs[0], outputs
    chunk, count = (int(each) for each in constants)
    found, signs = [np.zeros(0, "<u2")], [np.zeros(0, np.uint8)]
    for at in range(0, len(values), chunk):
        part = values[at : at + chunk]
        taken = np.sort(np.argsort(-np.abs(part), kind="stable")[:count])
        sizes = np.abs(part[taken])
        above = sizes > sizes.max() / np.float32(2)
        for which, own in enumerate((sizes[~above], sizes[above])):
            scales[2 * (at // chunk) + which] = own.mean(dtype=np.float64) if len(own) else 0
        found.append(taken.astype("<u2"))
        signs.append(above | np.signbit(part[taken]).astype(np.uint8) << 1)
    places[:] = np.concatenate(found).view(np.uint8)
    padded = np.zeros(4 * len(codes), np.uint8)
    padded[: len(places) // 2] = np.concatenate(signs)
    codes[:] = padded[::4] | padded[1::4] << 2 | padded[2::4] << 4 | padded[3::4] << 6


def scatter_add_int2(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(places, codes, scales) → dense: adds what `top_k` has sent. IndexError: a place is beyond its chunk."""
    places, codes, scales = inputs
    (dense,), (chunk, count) = outputs, (int(each) for each in constants)
    taken = places.view("<u2").astype(np.int64)
    of_chunk = np.repeat(np.arange(len(scales) // 2), count)[: len(taken)]
    bits = np.stack([codes >> shift & 3 for shift in (0, 2, 4, 6)], axis=1).reshape(-1)[: len(taken)]
    where = of_chunk * chunk + taken
    if np.any(taken >= np.minimum(chunk, len(dense) - of_chunk * chunk)):
        raise IndexError(f"a place beyond its chunk of {chunk}")
    np.add.at(dense, where, np.where(bits & 2, -1, 1).astype(np.float32) * scales[2 * of_chunk + (bits & 1)])


def matmul(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """(left, right) → out; constants rows, inner, cols, then 1 if left or right is stored transposed."""
    rows, inner, cols, left_t, right_t = (int(each) for each in constants)
    left = inputs[0].reshape(inner, rows).T if left_t else inputs[0].reshape(rows, inner)
    right = inputs[1].reshape(cols, inner).T if right_t else inputs[1].reshape(inner, cols)
    outputs[0][:] = (left @ right).reshape(-1)


def orthogonalise(_inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
    """Make columns orthonormal, by modified Gram-Schmidt; dependent ones become zero."""
    rows, cols = (int(each) for each in constants)
    matrix = outputs[0].reshape(rows, cols)
    for col in range(cols):
        before = np.dot(matrix[:, col], matrix[:, col])
        for other in range(col):
            matrix[:, col] -= np.dot(matrix[:, col], matrix[:, other]) * matrix[:, other]
        norm = np.dot(matrix[:, col], matrix[:, col])
        matrix[:, col] *= 1 / np.sqrt(norm) if norm > before * 1e-10 else 0


def seed(_inputs: Sequence[Array], outputs: Sequence[Array], _constants: Sequence[float]) -> None:
    """Replace zeros by the same numbers between -1 and 1 on every rank (Knuth's MMIX generator)."""
    if outputs[0].any():
        return
    state = 0x9E3779B97F4A7C15
    for at in range(len(outputs[0])):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        outputs[0][at] = np.float32(state >> 40) / np.float32(1 << 23) - np.float32(1)


def scatter_add_rows(dtype: str) -> Kernel:
    """(rows, numbers, count) → table: adds the first `count` rows, of as many elements as the constant says, in order."""

    def scatter_add(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
        rows, numbers, count = inputs
        (table,) = outputs
        elements = int(constants[0])
        known = len(table) // elements
        for at, number in enumerate(numbers[: int(count[0])]):
            if not 0 <= number < known:
                raise ProgramError(f"row {number} of {known}")
            place = slice(number * elements, (number + 1) * elements)
            table[place] = ops.reduce("sum", table[place], rows[at * elements : (at + 1) * elements], dtype)

    return scatter_add


def fill_as(dtype: str) -> Kernel:
    """`out` = the constant, of a 16-bit float."""

    def fill(_inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
        outputs[0][:] = ops.cast(np.array([constants[0]], np.float32), "f32", dtype)

    return fill


def _indices(indices: Array, count: Array, dense: Array) -> Array:
    taken = indices[: int(count[0])]
    if len(taken) and (taken.min() < 0 or taken.max() >= len(dense)):
        raise ProgramError(f"an index is beyond {len(dense)} elements")
    return taken


KERNELS: Mapping[str, Kernel] = {
    **{f"{each.__name__}.{dtype}": each for each in (sub, mul, clamp, fill) for dtype in ("f32", "f64")},
    **{f"{each.__name__}.f32": each for each in (top_k, scatter_add, clear_at, matmul, orthogonalise, seed)},
    **{f"scatter_add_rows.{dtype}": scatter_add_rows(dtype) for dtype in ("f64", "f32", "f16", "bf16")},
    **{f"fill.{dtype}": fill_as(dtype) for dtype in ("f16", "bf16")},
    **{f"{each.__name__}.int8": each for each in (quantise, dequantise, dequantise_add)},
    "quantise.int4": quantise_int4,
    "dequantise.int4": dequantise_int4,
    "dequantise_add.int4": dequantise_add_int4,
    "top_k.int2": top_k_int2,
    "scatter_add.int2": scatter_add_int2,
}
"""Kernels by the name in a program."""

"""Ops on arrays. Buffers are one-dimensional; bf16 is stored as the upper half of an f32, in uint16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

STORED: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "i64": np.int64,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
}
"""Array type of each element type."""

REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def cast(values: Array, source: str, target: str) -> Array:
    """`values` of type `source` as `target`, rounded to nearest even.

    >>> float(cast(np.array([1.0009765], np.float32), "f32", "f16")[0])
    1.0009765625
    """
    if source == target:
        return values.copy()
    if source == "bf16":
        wide = (values.astype(np.uint32) << 16).view(np.float32)
        return cast(wide, "f32", target)
    if target == "bf16":
        return _to_bf16(values.astype(np.float32))
    with np.errstate(over="ignore"):
        narrowed: Array = values.astype(STORED[target])
    return narrowed


def reduce(op: str, left: Array, right: Array, dtype: str) -> Array:
    """`left ⊕ right`, both of `dtype`; 16-bit floats are added in f32 and rounded once."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype in ("f16", "bf16"):
            return cast(REDUCTIONS[op](cast(left, dtype, "f32"), cast(right, dtype, "f32")), "f32", dtype)
        return REDUCTIONS[op](left, right)


def scale(values: Array, factor: float, dtype: str) -> Array:
    if dtype in ("f16", "bf16"):
        return cast(cast(values, dtype, "f32") * np.float32(factor), "f32", dtype)
    scaled: Array = values * STORED[dtype](factor)
    return scaled


def round_to(values: Array, dtype: str, target: str) -> Array:
    """Nearest values that `target` holds, still of `dtype`."""
    return cast(cast(values, dtype, target), target, dtype)


def first_non_finite(values: Array, dtype: str) -> int | None:
    """Position of the first NaN or infinity."""
    if dtype not in ("f64", "f32", "f16", "bf16"):
        return None
    found = np.flatnonzero(~np.isfinite(cast(values, dtype, "f64")))
    return int(found[0]) if len(found) else None


def collective(  # noqa: PLR0912, PLR0917  # a case per collective
    kind: str,
    slices: Sequence[Array],
    targets: Sequence[Array] | None,
    op: str,
    factor: float,
    root: int | None,
    dtype: str,
) -> None:
    """Execute a collective on the slices of its members, in their order; `targets` are the outputs of an all-to-all."""
    n = len(slices)
    part = [slice(len(slices[0]) * i // n, len(slices[0]) * (i + 1) // n) for i in range(n)]
    before = [each.copy() for each in slices]
    if kind in ("all_reduce", "reduce_scatter", "reduce_to"):
        total = before[0]
        for other in before[1:]:
            total = reduce(op, total, other, dtype)
        if factor != 1.0:
            total = scale(total, factor, dtype)
        for i, each in enumerate(slices):
            if kind == "all_reduce" or i == root:
                each[:] = total
            elif kind == "reduce_scatter":
                each[part[i]] = total[part[i]]
        return
    for i, each in enumerate(slices):
        for j in range(n):
            match kind:
                case "all_gather":
                    each[part[j]] = before[j][part[j]]
                case "gather" if i == root:
                    each[part[j]] = before[j][part[j]]
                case "all_to_all" if targets is not None:
                    targets[i][part[j]] = before[j][part[i]]
        if kind == "broadcast" and root is not None:
            each[:] = before[root]
        elif kind == "scatter" and root is not None:
            each[part[i]] = before[root][part[i]]


def _to_bf16(values: Array) -> Array:
    """Round to nearest even on the bits: add half of the last kept place, less one if that place is even."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)

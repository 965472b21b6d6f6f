"""Kernels of whole slices for `cx.apply`: built-ins by name, a `numba.cfunc`, a symbol of a shared library.

A kernel declares the element types that it takes, whether it works element by element, and whether it reads its
outputs. The verifier relies on the declaration, and `hocket.testing.check_kernel` checks it against NumPy.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hocket import extras
from hocket.errors import UsageError
from hocket.policy import sources

NUMPY = {"f64": "float64", "f32": "float32", "i64": "int64", "i32": "int32", "i8": "int8", "u8": "uint8"}
"""Element types of kernels, by NumPy's names; 16-bit floats are cast before."""


@dataclass(frozen=True)
class Kernel:
    """A function of whole slices.

    `inputs` and `outputs` are element types. `elementwise`: element `i` of the outputs depends on element `i` of the inputs
    alone. `updates`: outputs are read before they are written. `joins`: an elementwise kernel's result is this reduction of its
    inputs up to rounding (`sum`, `min`, `max`). `address`: address of the C function; None for built-ins.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    elementwise: bool = False
    updates: bool = False
    joins: str | None = None
    address: int | None = None
    keep: Any = field(default=None, compare=False, repr=False)
    """Reference that keeps the code behind the address alive."""

    def check_call(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Raise PolicyError unless the element types are those declared."""
        if tuple(inputs) != self.inputs or tuple(outputs) != self.outputs:
            declared = f"({', '.join(self.inputs)}) → ({', '.join(self.outputs)})"
            given = f"({', '.join(inputs)}) → ({', '.join(outputs)})"
            raise sources.refusal(f"kernel `{self.name}` is {declared}, called as {given}")


def _builtins() -> dict[str, Kernel]:
    known: list[Kernel] = []
    for dtype in ("f32", "f64"):
        known += [
            Kernel(f"sub.{dtype}", (dtype, dtype), (dtype,), elementwise=True),
            Kernel(f"mul.{dtype}", (dtype, dtype), (dtype,), elementwise=True),
            Kernel(f"clamp.{dtype}", (dtype,), (dtype,), elementwise=True),
            Kernel(f"fill.{dtype}", (), (dtype,), elementwise=True),
            Kernel(f"scatter_add_rows.{dtype}", (dtype, "i64", "i64"), (dtype,), updates=True),
        ]
    f32 = ("f32",)
    known += [
        Kernel("top_k.f32", f32, ("f32", "i32", "i64")),
        Kernel("scatter_add.f32", ("f32", "i32", "i64"), f32, updates=True),
        Kernel("clear_at.f32", ("i32", "i64"), f32, updates=True),
        Kernel("quantise.int8", f32, ("i8", "f32")),
        Kernel("dequantise.int8", ("i8", "f32"), f32),
        Kernel("dequantise_add.int8", ("i8", "f32"), f32, updates=True),
        Kernel("quantise.int4", f32, ("u8", "f32")),
        Kernel("dequantise.int4", ("u8", "f32"), f32),
        Kernel("dequantise_add.int4", ("u8", "f32"), f32, updates=True),
        Kernel("top_k.int2", f32, ("u8", "u8", "f32")),
        Kernel("scatter_add.int2", ("u8", "u8", "f32"), f32, updates=True),
        Kernel("matmul.f32", ("f32", "f32"), f32),
        Kernel("orthogonalise.f32", (), f32, updates=True),
        Kernel("seed.f32", (), f32, updates=True),
    ]
    return {each.name: each for each in known}


BUILTINS = _builtins()
"""Built-in kernels by name; the code is in `crates/kernels/src/named`, the definition in `hocket.reference.kernels`."""


def builtin(name: str) -> Kernel:
    """Return the built-in kernel `NAME.TYPE`; PolicyError lists all of them."""
    if name not in BUILTINS:
        raise sources.refusal(f"there is no built-in kernel `{name}`\nhint: {', '.join(sorted(BUILTINS))}")
    return BUILTINS[name]


def kernel(
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    elementwise: bool = False,
    updates: bool = False,
    joins: str | None = None,
) -> Callable[[Callable[..., None]], Kernel]:
    """Compile a Python function over NumPy arrays with numba: inputs, outputs (written in place), then the constants as an array.

    It runs on native threads without the GIL. Raises UsageError without numba, or when the function does not compile.

    >>> @kernel(inputs=["f32"], outputs=["f32"], elementwise=True)   # doctest: +SKIP
    ... def halve(x, out, constants):
    ...     for i in range(len(x)):
    ...         out[i] = x[i] / 2
    """
    _known_types([*inputs, *outputs])

    def compile_function(function: Callable[..., None]) -> Kernel:
        compiled = _numba(function, inputs, outputs)
        return Kernel(
            f"user.{function.__name__}",
            tuple(inputs),
            tuple(outputs),
            elementwise=elementwise,
            updates=updates,
            joins=joins,
            address=compiled.address,
            keep=compiled,
        )

    return compile_function


def library_kernel(
    path: Path | str,
    symbol: str,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    elementwise: bool = False,
    updates: bool = False,
    joins: str | None = None,
) -> Kernel:
    """A C function of a shared library: `void f(const void *const *inputs, const int64_t *input_bytes, void *const
    *outputs, const int64_t *output_bytes, const double *constants)`.

    Raises UsageError when there is no such library or symbol.
    """
    _known_types([*inputs, *outputs])
    try:
        loaded = ctypes.CDLL(str(path))
        address = ctypes.cast(getattr(loaded, symbol), ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise UsageError(f"kernel `{symbol}` of {path}: {error}") from None
    return Kernel(
        f"user.{symbol}",
        tuple(inputs),
        tuple(outputs),
        elementwise=elementwise,
        updates=updates,
        joins=joins,
        address=address,
        keep=loaded,
    )


def _known_types(dtypes: Sequence[str]) -> None:
    wrong = next((dtype for dtype in dtypes if dtype not in NUMPY), None)
    if wrong is not None:
        raise UsageError(f"kernels take {', '.join(NUMPY)}, not {wrong}\nhint: cast before")


def _numba(function: Callable[..., None], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    try:
        numba: Any = importlib.import_module("numba")  # of the extra `kernels`
    except ImportError:
        raise extras.missing("numba", "a kernel in Python") from None
    arity = len(inspect.signature(function).parameters)
    if arity != len(inputs) + len(outputs) + 1:
        raise UsageError(
            f"kernel `{function.__name__}` takes {arity} arguments: {len(inputs)} inputs, {len(outputs)} outputs and the constants "
            f"are {len(inputs) + len(outputs) + 1}"
        )
    views = [
        f"carray({side}[{at}], {side}_bytes[{at}] // {_item_bytes(dtype)}, dtype=np.{NUMPY[dtype]})"
        for side, dtypes in (("inputs", inputs), ("outputs", outputs))
        for at, dtype in enumerate(dtypes)
    ]
    code = f"""
        def wrapper(inputs, input_bytes, outputs, output_bytes, constants):
            function({", ".join([*views, "carray(constants, 16, dtype=np.float64)"])})
        """
    import numpy as np  # noqa: PLC0415  # with numba, which needs it

    names: dict[str, Any] = {"carray": numba.carray, "np": np, "function": numba.njit(function)}
    code = (
        textwrap.dedent(code).replace("inputs_bytes", "input_bytes").replace("outputs_bytes", "output_bytes")
    )
    exec(code, names)  # noqa: S102  # our own text around names of ours
    types = numba.types
    pointers, lengths = types.CPointer(types.voidptr), types.CPointer(types.int64)
    signature = types.void(pointers, lengths, pointers, lengths, types.CPointer(types.float64))
    try:
        return numba.cfunc(signature)(names["wrapper"])
    except numba.core.errors.NumbaError as error:
        raise UsageError(f"kernel `{function.__name__}` does not compile: {error}") from None


def _item_bytes(dtype: str) -> int:
    return {"f64": 8, "f32": 4, "i64": 8, "i32": 4, "i8": 1, "u8": 1}[dtype]

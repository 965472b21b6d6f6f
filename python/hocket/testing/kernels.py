"""Checks of a kernel against its NumPy form: equal results, no writes beyond its outputs, and its declaration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hocket._native import run_kernel
from hocket.errors import UsageError
from hocket.policy.kernels import NUMPY, Kernel, builtin
from hocket.reference.kernels import Kernel as PythonForm
from hocket.reference.ops import Array


def python_form(kernel: Kernel) -> PythonForm:
    """Wrap a user's kernel for the reference executor, called through its own address."""

    def call(inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float]) -> None:
        run(kernel, inputs, outputs, constants)

    return call


def run(
    kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array], constants: Sequence[float] = ()
) -> None:
    """Call a kernel natively on arrays; outputs are written in place."""
    run_kernel(
        kernel.name,
        kernel.address,
        [np.ascontiguousarray(each).data for each in inputs],
        [each.data for each in outputs],
        [float(each) for each in constants],
    )


def check_kernel(
    kernel: Kernel | str,
    expected: Callable[..., None],
    *,
    lengths: Callable[[int], tuple[Sequence[int], Sequence[int]]] | None = None,
    constants: Sequence[float] = (),
    sizes: Sequence[int] = (0, 1, 2, 7, 64, 1000),
    relative: float = 1e-6,
    seed: int = 0,
) -> None:
    """Compare a kernel with `expected(*inputs, *outputs, constants)`, which writes its outputs, over several sizes.

    `lengths(n)` returns the lengths of inputs and outputs; by default all are `n`. Raises AssertionError with the size, the first
    element that differs and both values, and also when an element of an elementwise kernel depends on another one.

    >>> def halve(x, out, constants): out[:] = np.clip(x, *constants)
    >>> check_kernel("clamp.f32", halve, constants=(-0.5, 0.5))
    """
    found = builtin(kernel) if isinstance(kernel, str) else kernel
    generator = np.random.default_rng(seed)
    for size in sizes:
        wanted = lengths(size) if lengths else ([size] * len(found.inputs), [size] * len(found.outputs))
        inputs = [_random(generator, n, dtype) for n, dtype in zip(wanted[0], found.inputs, strict=True)]
        outputs = [_random(generator, n, dtype) for n, dtype in zip(wanted[1], found.outputs, strict=True)]
        ours = [each.copy() for each in outputs]
        theirs = [each.copy() for each in outputs]
        run(found, inputs, ours, constants)
        expected(*inputs, *theirs, np.asarray(constants, np.float64))
        for at, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            _compare(found.name, size, at, ours=left, theirs=right, relative=relative)
        if found.elementwise and size > 1:
            _check_elementwise(found, inputs=inputs, outputs=outputs, whole=ours, constants=constants)


def _compare(name: str, size: int, at: int, *, ours: Array, theirs: Array, relative: float) -> None:
    bound = relative * (np.abs(theirs.astype(np.float64)) + 1e-6)
    wrong = np.flatnonzero(~(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)) <= bound))
    if len(wrong):
        first = int(wrong[0])
        raise AssertionError(
            f"kernel `{name}`, size {size}, output {at}: element {first} is {ours[first]!r}, expected {theirs[first]!r}"
        )


def _check_elementwise(
    kernel: Kernel,
    *,
    inputs: list[Array],
    outputs: list[Array],
    whole: list[Array],
    constants: Sequence[float],
) -> None:
    half = len(whole[0]) // 2
    parts = [each[half:].copy() for each in outputs]
    run(kernel, [each[half:].copy() for each in inputs], parts, constants)
    for part, all_of_it in zip(parts, whole, strict=True):
        if not np.array_equal(part, all_of_it[half:], equal_nan=part.dtype.kind == "f"):
            raise AssertionError(
                f"kernel `{kernel.name}` is declared elementwise, but half of a slice gives other elements"
            )


def _random(generator: np.random.Generator, elements: int, dtype: str) -> Array:
    if dtype not in NUMPY:
        raise UsageError(f"kernels take {', '.join(NUMPY)}, not {dtype}")
    if dtype in ("f32", "f64"):
        return generator.standard_normal(elements).astype(NUMPY[dtype])
    return generator.integers(0, 100, elements).astype(NUMPY[dtype])

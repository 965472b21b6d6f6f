"""The leaves of a pytree of parameters as `hocket.training` knows a model: names, shapes, element types, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from hocket.errors import UsageError
from hocket.training.gradients import Parameter

DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
"""Of gradients that travel."""


class Leaves:
    """Implements `Model`: all leaves start from rank 0's.

    Attributes:
        names: by leaf, its path.
        trained: by leaf, whether its gradient travels; those of integers and of empty arrays do not.
    """

    def __init__(self, tree: Any) -> None:
        """UsageError: a leaf is nothing that Hocket can move, or there is nothing to train."""
        found, self.treedef = jax.tree_util.tree_flatten_with_path(tree)
        self.names = [
            jax.tree_util.keystr(path, simple=True, separator=".") or "parameter" for path, _ in found
        ]
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"two leaves have the path `{twice}`\nhint: keys without dots")
        self.arrays = [_array(name, leaf) for name, (_, leaf) in zip(self.names, found, strict=True)]
        self.trained = [each.size > 0 and each.dtype.name in DTYPES for each in self.arrays]
        if not any(self.trained):
            raise UsageError("the parameters have no leaf of floating point: there is nothing to distribute")

    def tree(self) -> Any:
        """The parameters, as arrays of JAX."""
        return jax.tree_util.tree_unflatten(self.treedef, self.arrays)

    def parameters(self) -> list[Parameter]:
        """In the order in which JAX flattens the tree."""
        return [
            Parameter(
                name=name,
                shape=each.shape,
                dtype=DTYPES.get(each.dtype.name, each.dtype.name),
                trained=trained,
            )
            for name, each, trained in zip(self.names, self.arrays, self.trained, strict=True)
        ]

    def remote(self, names: Sequence[str]) -> NoReturn:
        """UsageError: the optimizer is a function of the script's."""
        raise UsageError(
            f"parameter servers cannot run the optimizer of a JAX script, and the plan has them hold `{names[0]}`\n"
            "hint: a plan without the route `served`"
        )

    def optimizer_state(self) -> bytes:
        """Scripts make it of the parameters, which are the same everywhere."""
        return b""

    def load_optimizer_state(self, saved: bytes) -> NoReturn:
        """No rank has one."""
        raise UsageError(f"{len(saved)} bytes of an optimizer's state, which JAX scripts keep themselves")

    def state_bytes(self) -> int:
        """Of all leaves."""
        return sum(each.nbytes for each in self.arrays)

    def write_state(self, into: memoryview) -> None:
        """One leaf after the other."""
        for start, each in self._starts():
            into[start : start + each.nbytes] = np.asarray(each).reshape(-1).view(np.uint8).data

    def read_state(self, saved: memoryview) -> None:
        """Of another rank: new arrays."""
        self.arrays = [
            # A copy: the memory goes, and CPU arrays of JAX may be views of what they are made of.
            jnp.array(
                np.frombuffer(bytes(saved[start : start + each.nbytes]), each.dtype).reshape(each.shape)
            )
            for start, each in self._starts()
        ]

    def _starts(self) -> Iterator[tuple[int, jax.Array]]:
        start = 0
        for each in self.arrays:
            yield start, each
            start += each.nbytes


def _array(name: str, leaf: Any) -> jax.Array:
    if jnp.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.extended):
        raise UsageError(f"`{name}` is a key of random numbers\nhint: keep keys outside the parameters")
    try:
        array = jnp.asarray(leaf)
    except TypeError:
        raise UsageError(f"`{name}` is a {type(leaf).__name__}, not an array") from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise UsageError(
            f"`{name}` is complex ({array.dtype.name}): gradients travel as {', '.join(DTYPES)}\n"
            "hint: keep real and imaginary parts as two leaves"
        )
    if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.name not in DTYPES:
        raise UsageError(f"`{name}` is of {array.dtype.name}: gradients travel as {', '.join(DTYPES)}")
    if (platform := next(iter(array.devices())).platform) != "cpu":
        raise UsageError(
            f"`{name}` is on a {platform}: Hocket moves gradients in CPU memory\nhint: JAX_PLATFORMS=cpu"
        )
    return array

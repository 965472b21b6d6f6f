"""Leaves of a pytree of parameters as `hocket.training` knows a model: names, shapes, element types, and their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hocket.errors import UsageError
from hocket.training.memory.compiled_model import DTYPES, CompiledModel
from hocket.training.memory.gradients import Parameter


class Leaves(CompiledModel):
    """Leaves of one tree.

    Attributes:
        count: number of the tree's leaves; arrays that are only made equal come after them.
        names: path of each leaf.
        trained: for each leaf, True if its gradient travels; gradients of integers and of empty arrays do not.
    """

    script = "a JAX script"

    def __init__(self, tree: Any, also: Mapping[str, Any] | None = None) -> None:
        """Take the leaves of `tree`. `also`: arrays that are only made equal. UsageError: Hocket cannot move a leaf, or there is
        nothing to train."""
        also = also or {}
        found, self.treedef = jax.tree_util.tree_flatten_with_path(tree)
        self.names = [
            jax.tree_util.keystr(path, simple=True, separator=".") or "parameter" for path, _ in found
        ]
        self.count = len(found)
        self.names += also
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"two leaves have the path `{twice}`\nhint: keys without dots")
        self.arrays = [
            _array(name, leaf)
            for name, leaf in zip(self.names, [*(leaf for _, leaf in found), *also.values()], strict=True)
        ]
        self.trained = [
            at < self.count and each.size > 0 and each.dtype.name in DTYPES
            for at, each in enumerate(self.arrays)
        ]
        if not any(self.trained):
            raise UsageError("the parameters have no leaf of floating point: there is nothing to distribute")

    def tree(self) -> Any:
        """Return the parameters, as arrays of JAX."""
        return jax.tree_util.tree_unflatten(self.treedef, self.arrays[: self.count])

    def parameters(self) -> list[Parameter]:
        """Return all parameters, in the order in which JAX flattens the tree."""
        return [
            Parameter(
                name=name,
                shape=each.shape,
                dtype=DTYPES.get(each.dtype.name, each.dtype.name),
                trained=trained,
            )
            for name, each, trained in zip(self.names, self.arrays, self.trained, strict=True)
        ]

    def values(self) -> list[np.ndarray[Any, Any]]:
        """Return the values; they are views if JAX has the arrays in memory of its own."""
        return [np.asarray(each) for each in self.arrays]

    def set_values(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Replace arrays with copies: JAX's arrays may be views of their sources."""
        self.arrays = [jnp.array(each) for each in values]


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

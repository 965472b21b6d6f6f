"""Variables of TensorFlow as `hocket.training` knows a model: names, shapes, element types, and their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hocket.errors import UsageError
from hocket.training.memory.compiled_model import DTYPES, CompiledModel, unlike
from hocket.training.memory.gradients import Parameter


class Variables(CompiledModel):
    """Variables that a script distributes.

    Attributes:
        variables: variables as the script has them, of TensorFlow or of Keras.
        names: names by variable, all different.
        trained: positions of variables whose gradients travel; the others are only made equal.
    """

    script = "a TensorFlow script"

    def __init__(self, variables: Any, also: Sequence[Any] = ()) -> None:
        """Take a structure of `variables`, or a `tf.Module`. `also`: variables that are only made equal. UsageError: Hocket cannot
        move one, or there is nothing to train."""
        if isinstance(variables, tf.Module):
            variables = variables.variables
        candidates = tf.nest.flatten(variables)
        self.variables = [*candidates, *also]
        self._own = [_own(each) for each in self.variables]
        twice = [each for at, each in enumerate(self._own) if any(each is one for one in self._own[:at])]
        if twice:
            raise UsageError(f"`{_name(twice[0])}` is distributed twice\nhint: each variable once")
        self.names = unlike([_name(each) for each in self.variables])
        for name, own in zip(self.names, self._own, strict=True):
            _check(name, own)
        self.trained = [
            at
            for at, own in enumerate(self._own)
            if at < len(candidates)
            and own.trainable
            and own.dtype.name in DTYPES
            and own.shape.num_elements() > 0
        ]
        if not self.trained:
            raise UsageError("no variable of floating point is trainable: there is nothing to distribute")
        self._leaves: dict[int, int] = {}
        for leaf, at in enumerate(self.trained):
            # Both objects stay as long as this one, so that no other object has their identity.
            self._leaves[id(self.variables[at])] = self._leaves[id(self._own[at])] = leaf

    def leaf(self, variable: Any) -> int:
        """Return the position of the variable's gradient among those that travel. UsageError: it has none."""
        found = self._leaves.get(id(variable))
        if found is None:
            raise UsageError(
                f"`{_name(variable)}` is not among the {len(self.trained)} variables that train together\n"
                "hint: distribute all variables that are trained, once they are made"
            )
        return found

    def gradient(self, leaf: int) -> tuple[str, Any]:
        """Return name and variable of a gradient that travels."""
        at = self.trained[leaf]
        return self.names[at], self._own[at]

    def parameters(self) -> list[Parameter]:
        """Return all parameters, in the script's order."""
        trained = frozenset(self.trained)
        return [
            Parameter(
                name=name,
                shape=tuple(own.shape.as_list()),
                dtype=DTYPES.get(own.dtype.name, own.dtype.name),
                trained=at in trained,
            )
            for at, (name, own) in enumerate(zip(self.names, self._own, strict=True))
        ]

    def values(self) -> list[np.ndarray[Any, Any]]:
        """Return copies of the values."""
        return [own.numpy() for own in self._own]

    def set_values(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Assign values; the variables stay the same objects."""
        for own, value in zip(self._own, values, strict=True):
            own.assign(value)


def _own(variable: Any) -> Any:
    """Return TensorFlow's variable in one of Keras."""
    found = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", None)
    if isinstance(variable, tf.distribute.DistributedValues):
        raise UsageError(
            f"`{_name(variable)}` was made under a tf.distribute.Strategy, which reduces gradients itself\n"
            "hint: make it outside of strategy.scope()"
        )
    if not isinstance(found, tf.Variable):
        raise UsageError(
            f"a {type(variable).__name__} is no variable\nhint: hk.distribute(model.trainable_variables)"
        )
    return found


def _name(variable: Any) -> str:
    """Return Keras' path, which says more than the name, if there is one."""
    name = getattr(variable, "path", None) or getattr(variable, "name", None) or type(variable).__name__
    return str(name).removesuffix(":0")


def _check(name: str, own: Any) -> None:
    if own.dtype.is_complex:
        raise UsageError(
            f"`{name}` is complex ({own.dtype.name}): gradients travel as {', '.join(DTYPES)}\n"
            "hint: keep real and imaginary parts as two variables"
        )
    if own.dtype.is_floating and own.dtype.name not in DTYPES:
        raise UsageError(f"`{name}` is of {own.dtype.name}: gradients travel as {', '.join(DTYPES)}")
    if not (own.dtype.is_floating or own.dtype.is_integer or own.dtype.is_bool):
        raise UsageError(f"`{name}` is of {own.dtype.name}, which Hocket cannot copy to other ranks")
    if not own.shape.is_fully_defined():
        raise UsageError(f"`{name}` has the shape {own.shape}: gradients need all dimensions")
    if own.device and "/device:CPU" not in own.device:
        raise UsageError(
            f"`{name}` is on {own.device}: Hocket moves gradients in CPU memory\nhint: CUDA_VISIBLE_DEVICES=''"
        )

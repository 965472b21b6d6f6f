"""Base class of models whose optimizer is a function of the script's: Hocket neither runs nor knows the optimizer."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import numpy as np

from hocket.errors import UsageError
from hocket.refusals import Capability
from hocket.training.memory.gradients import Parameter
from hocket.training.memory.replicas import Options
from hocket.training.memory.state_parts import StateBytes

DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
"""Element types of gradients that travel, by the names that frameworks give them."""


class CompiledModel(abc.ABC):
    """Base class that implements `Model`: all arrays start from rank 0's.

    Attributes:
        script: noun for such a script, in messages.
        able: what the framework is able to do of what some features need.
    """

    script: str
    able: ClassVar[frozenset[Capability]] = frozenset(["compiled", "epochs"])

    @abc.abstractmethod
    def parameters(self) -> list[Parameter]:
        """Return the parameters, in the same order on all ranks."""

    @abc.abstractmethod
    def values(self) -> Sequence[np.ndarray[Any, Any]]:
        """Return the current value of each parameter."""

    @abc.abstractmethod
    def set_values(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Set the values of another rank; the arrays are not kept, as their memory is freed."""

    def remote(self, names: Sequence[str]) -> NoReturn:
        """Raise UsageError: the optimizer is a function of the script's."""
        raise UsageError(
            f"parameter servers cannot run the optimizer of {self.script}, and the plan has them hold `{names[0]}`\n"
            "hint: a plan without the route `served`"
        )

    def optimizer_state(self) -> bytes:
        """Return nothing: scripts make the optimizer state from the parameters, which are the same everywhere."""
        return b""

    def load_optimizer_state(self, saved: bytes) -> NoReturn:
        """Raise UsageError: no rank has optimizer state."""
        raise UsageError(f"{len(saved)} bytes of an optimizer's state, which {self.script} keeps itself")

    def options(self) -> Options:
        """Return nothing: the optimizer is the script's."""
        return ()

    def state(self) -> list[StateBytes]:
        return [_bytes(np.ascontiguousarray(each)) for each in self.values()]

    @contextmanager
    def filling(self) -> Iterator[list[StateBytes]]:
        """Yield arrays in memory of their own, since values may not be written to."""
        values = [np.empty(each.shape, each.dtype) for each in self.values()]
        yield [_bytes(each) for each in values]
        self.set_values(values)


def unlike(names: Sequence[str]) -> list[str]:
    """Return the names, with numbers where several are alike; the first of these keeps its own name."""
    taken: set[str] = set()
    unlike = []
    for name in names:
        number, own = 0, name
        while own in taken:
            number += 1
            own = f"{name}.{number}"
        taken.add(own)
        unlike.append(own)
    return unlike


def _bytes(value: np.ndarray[Any, Any]) -> StateBytes:
    """Return the bytes of a contiguous array."""
    return value.reshape(-1).view(np.uint8)

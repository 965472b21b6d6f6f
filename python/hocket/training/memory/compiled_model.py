"""What models have in common whose optimizer is a function of the script's: Hocket neither runs nor knows it."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from hocket.errors import UsageError
from hocket.training.memory.framework import StateBytes
from hocket.training.memory.gradients import Parameter
from hocket.training.memory.replicas import Options

DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
"""Of gradients that travel, by the name that frameworks give them."""


class CompiledModel(abc.ABC):
    """Implements `Model`: all arrays start from rank 0's.

    Attributes:
        script: such a script, in messages.
    """

    script: str

    @abc.abstractmethod
    def parameters(self) -> list[Parameter]:
        """In the same order on all ranks."""

    @abc.abstractmethod
    def values(self) -> Sequence[np.ndarray[Any, Any]]:
        """By parameter, its value now."""

    @abc.abstractmethod
    def set_values(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Of another rank; the arrays are not kept, their memory goes."""

    def remote(self, names: Sequence[str]) -> NoReturn:
        """UsageError: the optimizer is a function of the script's."""
        raise UsageError(
            f"parameter servers cannot run the optimizer of {self.script}, and the plan has them hold `{names[0]}`\n"
            "hint: a plan without the route `served`"
        )

    def optimizer_state(self) -> bytes:
        """Scripts make it of the parameters, which are the same everywhere."""
        return b""

    def load_optimizer_state(self, saved: bytes) -> NoReturn:
        """No rank has one."""
        raise UsageError(f"{len(saved)} bytes of an optimizer's state, which {self.script} keeps itself")

    def options(self) -> Options:
        """The optimizer is the script's."""
        return ()

    def state(self) -> list[StateBytes]:
        """Of all parameters."""
        return [_bytes(np.ascontiguousarray(each)) for each in self.values()]

    @contextmanager
    def filling(self) -> Iterator[list[StateBytes]]:
        """In memory of their own: values may not be written to."""
        values = [np.empty(each.shape, each.dtype) for each in self.values()]
        yield [_bytes(each) for each in values]
        self.set_values(values)


def unlike(names: Sequence[str]) -> list[str]:
    """The same names, numbered where several are alike, the first of which keeps its own."""
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
    """Of a contiguous one."""
    return value.reshape(-1).view(np.uint8)

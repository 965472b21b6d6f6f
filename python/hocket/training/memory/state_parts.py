"""A model's state in parts, as ranks give it to one that joins while they train: what a framework supplies.

A part is a trained parameter with its optimizer state, or a piece of a parameter that no step changes (the script may: averages of
others, say; then it is given again). A trained part is given once, after some step; then it is *followed*: its receiver steps it
with the gradients of each further step, which all ranks have alike.

Where ranks step alone between exchanges, what they have alike is the anchor: a part has its value and the outer optimizer's state,
and the gradients that step it are those of exchanges. The state of the rank's own optimizer goes with it, as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.artefacts.plan import Outer

StateBytes = npt.NDArray[np.uint8]
"""Array of shape (size in bytes,)."""

PIECE_BYTES = 16 << 20
"""Largest piece of a parameter that is not trained."""

Number = float | int | bool | str | None
"""Option of a group of the optimizer, or a number in its state."""

Rates = Sequence[Mapping[str, Any]]
"""Numbers of the optimizer's groups, by name."""


class Part(NamedTuple):
    """Part of the state. `bytes`: its size on this rank; `trained`: steps change it."""

    bytes: int
    trained: bool


class Tensor(Struct, frozen=True, forbid_unknown_fields=True):
    """Tensor of the optimizer's state of a parameter. `beside`: it is on the parameter's device."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    beside: bool


class Described(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Meaning of a part's bytes: the value, then these tensors of the state of the optimizer that steps it. `numbers`: the rest of
    that state. `own_tensors` come last, and `own_numbers`: of the rank's own optimizer, where another one steps the part."""

    value_bytes: int
    tensors: tuple[Tensor, ...] = ()
    numbers: dict[str, Number] = {}
    own_tensors: tuple[Tensor, ...] = ()
    own_numbers: dict[str, Number] = {}


class StateParts(Protocol):
    """State of a model and its optimizer. Parts have the same numbers on all ranks. All calls come from the thread that trains."""

    @property
    def arrays(self) -> int:
        """Number of arrays in `Model.state` of which the parts are: its first ones. Those after them change without steps."""

    @property
    def outer(self) -> Outer | None:
        """Outer optimizer that steps the parts; None: the rank's own does."""

    def follow(self, outer: Outer | None) -> None:
        """Expect parts that are stepped by this outer optimizer, or by the rank's own."""

    def hand_over(self) -> None:
        """Let the session go on with the outer optimizer's state that has come, if any has."""

    def parts(self) -> Sequence[Part]:
        """Return all parts."""

    def unfit(self) -> str | None:
        """Return why the state cannot be given in parts, or None."""

    def give(self, part: int) -> tuple[Described, Sequence[StateBytes]]:
        """Return a part as it is now: arrays, one after the other, which may be views."""

    def alike(self, part: int) -> Sequence[StateBytes]:
        """Return those bytes of a part that all ranks have alike."""

    def gradients(self, parts: Sequence[int]) -> Sequence[tuple[int, StateBytes]]:
        """Return the gradients with which the last step changed these parts, or the one that is about to; parts without one are
        passed over."""

    def sums(self, sums: Mapping[str, Any], parts: Collection[int]) -> Sequence[tuple[int, StateBytes]]:
        """Return those of these sums of gradients, by name, that are of these parts, as `gradients` would if the optimizer stepped
        with them; none where that is not known before the step."""

    def before_step(self, call: Callable[[], None]) -> None:
        """Call `call` when the optimizer is about to step, in the thread that trains."""

    def changed(self) -> Sequence[int]:
        """Return parts that something else than the optimizer has changed since `stepped`, as far as that shows."""

    def stepped(self) -> None:
        """Note that the optimizer has stepped."""

    def rates(self) -> Rates:
        """Return the numbers of the optimizer's groups."""

    def take(self, part: int, described: Described, data: memoryview) -> None:
        """Set a part. UsageError: it is of another model."""

    def step(self, rates: Rates, gradients: Sequence[tuple[int, memoryview]]) -> None:
        """Step these parts, and no others, with these gradients."""

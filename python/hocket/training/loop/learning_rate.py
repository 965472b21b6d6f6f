"""Rules by which a learning rate follows the number of ranks, each of which brings a batch of its own."""

from __future__ import annotations

import math
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.errors import UsageError

Rule = Literal["linear", "sqrt"]
"""Scaling rules. `linear`: Goyal et al., "Accurate, Large Minibatch SGD", 2017. `sqrt`: Krizhevsky, "One weird trick for
parallelizing convolutional neural networks", 2014; for Adam and AdamW, Malladi et al., "On the SDEs and Scaling Rules for Adaptive
Gradient Algorithms", 2022."""


class Ramp(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ramp from one factor to another in `steps` steps, of which `done` are done."""

    first: float
    last: float
    steps: int = 0
    done: int = 0

    def after(self, done: int) -> float:
        """Return the factor of step number `done`, from 1."""
        if done >= self.steps:
            return self.last
        return self.first + (self.last - self.first) * done / self.steps


class SavedScale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State for a checkpoint. `world`: number of ranks for which the script chose its learning rate."""

    world: int
    ramp: Ramp


class Scale:
    """Factor of a learning rate that a script chose for `world` ranks; None: for as many as the job starts with.

    >>> scale = Scale("linear", world=1, warmup=2)
    >>> scale.change(4)
    >>> [scale.step() for _ in range(3)]
    [2.5, 4.0, 4.0]
    """

    def __init__(self, rule: str, *, world: int | None, warmup: int) -> None:
        """Begin with factor 1. `warmup`: steps of the optimizer from one factor to the next. UsageError: there is no such rule."""
        if rule not in get_args(Rule):
            raise UsageError(f"scale_lr: rule={rule!r}: known are {', '.join(map(repr, get_args(Rule)))}")
        if warmup < 0:
            raise UsageError(f"scale_lr: warmup={warmup} steps")
        if world is not None and world < 1:
            raise UsageError(f"scale_lr: a learning rate for world={world} ranks")
        self._rule, self._chosen_for, self._warmup = rule, world, warmup
        self._now = 1
        self._ramp = Ramp(first=1.0, last=1.0)

    def change(self, world: int) -> None:
        """Set the number of ranks that train from now on."""
        self._now = world
        self._chosen_for = self._chosen_for or world
        share = world / self._chosen_for
        last = share if self._rule == "linear" else math.sqrt(share)
        if last != self._ramp.last:
            self._ramp = Ramp(first=self._ramp.after(self._ramp.done), last=last, steps=self._warmup)

    @property
    def coming(self) -> float:
        """Factor of the step that comes next."""
        return self._ramp.after(self._ramp.done + 1)

    def step(self) -> float:
        """Return the factor of the step that begins now."""
        factor, ramp = self.coming, self._ramp
        self._ramp = Ramp(
            first=ramp.first, last=ramp.last, steps=ramp.steps, done=min(ramp.done + 1, ramp.steps)
        )
        return factor

    def saved(self) -> dict[str, Any]:
        saved = SavedScale(world=self._chosen_for or self._now, ramp=self._ramp)
        return cast("dict[str, Any]", msgspec.to_builtins(saved))

    def resume(self, saved: object) -> None:
        """Go on from the state of another job, which may have had another number of ranks. UsageError: `saved` is no such state."""
        try:
            found = typed.of_builtins(saved, SavedScale)
        except msgspec.ValidationError as error:
            raise UsageError(f"scale_lr: the checkpoint has something else of this name: {error}") from None
        self._chosen_for, self._ramp = found.world, found.ramp
        self.change(self._now)

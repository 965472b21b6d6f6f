"""Copies of the state that policies keep from step to step, as it was after the last step that stands.

A step that a loss interrupts may have changed residuals and factors already, on some ranks. It is reduced again from these copies,
which take the state's memory once more, and a pass over it in each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from hocket import _native
from hocket.training.checkpoint import states
from hocket.training.checkpoint.states import Held, OfBucket, OfParameter
from hocket.training.memory.buckets import LoadedBucket

State = TypeVar("State", OfParameter, OfBucket)


class Kept:
    """Copies of a rank's state of programs."""

    def __init__(self) -> None:
        self._held = Held()

    def take(self, buckets: Sequence[LoadedBucket], engine: _native.Engine, rank: int) -> None:
        """Copy the state of these programs after a step that stands; none of them runs."""
        live = states.held(buckets, engine, rank)
        self._held = Held(
            _copies(live.parameters, self._held.parameters), _copies(live.buckets, self._held.buckets)
        )

    def put(self, buckets: Sequence[LoadedBucket], engine: _native.Engine, rank: int) -> None:
        """Restore the copies into these programs, which have just been loaded."""
        states.put(self._held, buckets, engine, rank)


def _copies(live: Sequence[State], before: Sequence[State]) -> list[State]:
    """Return copies, in the memory of the copies before where those have the same shapes."""
    alike = len(live) == len(before) and all(
        new.rows.shape == old.rows.shape for new, old in zip(live, before, strict=True)
    )
    made = []
    for at, each in enumerate(live):
        rows = before[at].rows if alike else np.empty_like(each.rows)
        np.copyto(rows, each.rows)
        made.append(replace(each, rows=rows))
    return made

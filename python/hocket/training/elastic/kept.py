"""What policies keep from step to step, as it was after the last step that stands.

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
        """Of none."""
        self._held = Held()

    def take(self, buckets: Sequence[LoadedBucket], engine: _native.Engine, rank: int) -> None:
        """A step stands: the state of these programs, none of which runs."""
        live = states.held(buckets, engine, rank)
        self._held = Held(
            _copies(live.parameters, self._held.parameters), _copies(live.buckets, self._held.buckets)
        )

    def put(self, buckets: Sequence[LoadedBucket], engine: _native.Engine, rank: int) -> None:
        """These programs, which have just been loaded, go on from it."""
        states.put(self._held, buckets, engine, rank)


def _copies(live: Sequence[State], before: Sequence[State]) -> list[State]:
    """In the memory of the copies before, where they have the same shapes."""
    alike = len(live) == len(before) and all(
        new.rows.shape == old.rows.shape for new, old in zip(live, before, strict=True)
    )
    made = []
    for at, each in enumerate(live):
        rows = before[at].rows if alike else np.empty_like(each.rows)
        np.copyto(rows, each.rows)
        made.append(replace(each, rows=rows))
    return made

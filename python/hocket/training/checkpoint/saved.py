"""State that a session leaves for the next job: that of buckets' programs, and gradients that were made and are not applied.

The form is plain data with arrays of bytes, for a framework's own files. Data that comes back from a file is checked here for its
form; sessions check that it belongs to this job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from hocket import typed
from hocket.artefacts.plan import Schedule
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.training.checkpoint.states import Held, OfBucket, OfParameter
from hocket.training.guard.drift import SavedDrift
from hocket.training.guard.oversight import SavedOversight
from hocket.training.guard.weighing import SavedWeighing
from hocket.training.memory.turns import SavedTurns

VERSION = 2


class SavedDelays(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a session with merged or late gradients.

    Attributes:
        layout: digest of the plan's schedules, buckets and ranks: open turns go on only under the same layout.
        turns: turns that are open and in flight.
        reduced: by launch, turns that were reduced and not applied.
        slots: by gradient, the bytes in each of its slots; None: nothing of a turn.
        schedule: schedule in force.
        retreats: ranks have agreed that the schedule ends.
        reschedules: another schedule of the same programs follows when turns are drained.
        oversight: guard and sentinel, if there are any.
        norms2: by arena, the squared norm of gradients that were applied last.
        own: what this rank has apart from the anchor, where it trains ahead of one, and the outer optimizer's state: bytes, else
            empty.
        own_unmade: arena, slot and parameters without own gradients of each turn that the anchor lacks.
        scales: factor by which gradients of an iteration are scaled, for those that are not applied.
        drift: guard of ranks that step alone, if they do.
        weighing: their weights, if these differ.
    """

    layout: str
    turns: SavedTurns
    reduced: tuple[int, ...]
    slots: dict[str, tuple[Any, ...]]
    schedule: Schedule
    retreats: bool
    reschedules: bool
    oversight: SavedOversight | None
    norms2: tuple[tuple[int, float], ...]
    own: Any
    own_unmade: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
    scales: tuple[tuple[int, float], ...] = ()
    drift: SavedDrift | None = None
    weighing: SavedWeighing | None = None

    @property
    def open(self) -> int:
        """Number of iterations with gradients of any parameter that are not applied yet."""
        return self.turns.made - min(self.turns.applied, default=self.turns.made)


class SavedSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of one rank."""

    version: int = VERSION
    rank: int
    world: int
    parameters: tuple[OfParameter, ...] = ()
    buckets: tuple[OfBucket, ...] = ()
    delays: SavedDelays | None = None

    @classmethod
    def of(cls, held: Held, job: Job) -> SavedSession:
        """Return the state of a session without turns."""
        return cls(
            rank=job.rank,
            world=job.world,
            parameters=tuple(held.parameters),
            buckets=tuple(held.buckets),
        )

    def held(self, rank: int) -> Held:
        """Return state for a rank: another rank gets the state that all ranks have in common."""
        held = Held(list(self.parameters), list(self.buckets))
        return held if rank == self.rank else held.shared_only()


def plain(value: Any, leaf: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    """Return dictionaries, lists, numbers and words; `leaf` converts each array, which changes no more."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        tag = {} if config.tag is None else {str(config.tag_field): config.tag}
        return tag | {name: plain(getattr(value, name), leaf) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: plain(each, leaf) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each, leaf) for each in value]
    if isinstance(value, np.ndarray):
        return leaf(value.copy())
    return value


def read_back(given: Any, array: Callable[[Any], Any]) -> SavedSession:
    """Return the session that `plain` converted; `array` makes leaves NumPy arrays again, and leaves all else alone. UsageError: it
    is something else."""
    version = given.get("version", VERSION) if isinstance(given, Mapping) else VERSION
    if version != VERSION:
        raise UsageError(
            f"load_state_dict: version {version} of saved state, and this Hocket knows version {VERSION}"
        )
    try:
        saved = typed.of_builtins(_with_arrays(given, array), SavedSession)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"load_state_dict: this is not what hk.state_dict returned: {error}\n"
            "hint: give it the same rank's, as it was saved"
        ) from None
    slots = () if saved.delays is None else saved.delays.slots.values()
    rows = [*(each.rows for each in saved.parameters), *(each.rows for each in saved.buckets)]
    leaves = [*rows, *(each for own in slots for each in own if each is not None)]
    if any(not isinstance(each, np.ndarray) or each.dtype != np.uint8 for each in leaves):
        raise UsageError("load_state_dict: arrays of this state are not of bytes, as hk.state_dict made them")
    if any(each.ndim != 2 for each in rows):
        raise UsageError("load_state_dict: state of this file has no row of bytes for each element")
    return saved


def _with_arrays(value: Any, array: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_arrays(each, array) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_arrays(each, array) for each in value]
    return array(value)

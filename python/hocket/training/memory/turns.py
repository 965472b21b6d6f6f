"""Turns of a session beside the native `Readiness`, which knows those that are open, in flight and due.

A *turn* of a bucket sums the gradients of one iteration or of several, is reduced by one launch, and is applied once. Buckets that
share memory, an *arena*, have the same turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from hocket import _native
from hocket._native import LiveTurn
from hocket.artefacts import plan as artefact
from hocket.artefacts.plan import Schedule
from hocket.errors import UsageError
from hocket.planning.turn_memory import slots_of


def is_synchronous(schedule: Schedule) -> bool:
    """Return whether every gradient is applied by itself, in its own iteration.

    >>> late = artefact.Turn(first=0, last=0, due=artefact.Due(iteration=1))
    >>> is_synchronous(Schedule()), is_synchronous(Schedule(turns=((late,),)))
    (True, False)
    """
    turns = [turn for each in schedule.turns for turn in each]
    return schedule.steps != "local" and all(turn.first == turn.last == turn.due.iteration for turn in turns)


def own_go_first(schedule: Schedule) -> bool:
    """Return whether ranks go on with their own gradients until means arrive."""
    return schedule.steps == "own first" and not is_synchronous(schedule)


def has_anchor(schedule: Schedule) -> bool:
    """Return whether ranks train apart from an anchor, ahead of it by their own gradients or by steps of their own."""
    return schedule.steps == "local" or own_go_first(schedule)


def slots_for(plan: artefact.Plan, buckets: int) -> list[int]:
    """Return the slots of each bucket, whichever of the plan's schedules is in force."""
    return slots_of((plan.schedule, *plan.safer), buckets)


class SavedTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `LiveTurn`. `unmade`: parameters whose gradient no rank has made in any of its iterations."""

    slot: int
    iterations: int
    last: int | None = None
    due: int | None = None
    at: Literal["end", "gate"] = "end"
    unmade: tuple[str, ...] | None = None


class SavedTurns(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of turns between two iterations; `turns`: by arena, those that wait from the oldest on, and the open one."""

    made: int
    applied: tuple[int, ...]
    held: bool
    turns: tuple[tuple[SavedTurn, ...], ...]


class Unmade:
    """Parameters whose gradients no rank has made in any iteration of a turn, as far as votes are counted."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], frozenset[str]] = {}
        """By arena and slot of each turn that is not applied."""
        self._summed: list[tuple[int, int]] = []

    @property
    def counts(self) -> bool:
        """True if votes of the last iteration that ended are still to be counted."""
        return bool(self._summed)

    def ended(self, turns: Iterable[LiveTurn]) -> None:
        """Note that an iteration ends, whose gradients are in these turns."""
        self._summed = [(turn.arena, turn.slot) for turn in turns]

    def counted(self, unmade: Iterable[str]) -> None:
        """Note that the votes of the last ended iteration are counted: `unmade` are gradients that no rank has made in it."""
        never = frozenset(unmade)
        for turn in self._summed:
            self._names[turn] = self._names.get(turn, never) & never
        self._summed = []

    def taken(self, turn: LiveTurn) -> frozenset[str]:
        """Return the parameters of a turn that is applied now."""
        return self._names.pop((turn.arena, turn.slot), frozenset())

    def saved(self, readiness: _native.Readiness) -> SavedTurns:
        """Return the state of all turns, once votes are counted. UsageError: they are not."""
        if self.counts:
            raise UsageError("turns are saved when the votes of the last iteration are counted")
        made, turns = readiness.made, readiness.turns
        return SavedTurns(
            made=made,
            applied=tuple(made - sum(turn.iterations for turn in own) for own in turns),
            held=readiness.held,
            turns=tuple(tuple(map(self._saved, own)) for own in turns),
        )

    def restore(self, saved: SavedTurns) -> None:
        """Restore what was saved."""
        for arena, own in enumerate(saved.turns):
            for turn in own:
                if turn.unmade is not None:
                    self._names[arena, turn.slot] = frozenset(turn.unmade)

    def _saved(self, turn: LiveTurn) -> SavedTurn:
        unmade = self._names.get((turn.arena, turn.slot))
        return SavedTurn(
            slot=turn.slot,
            iterations=turn.iterations,
            last=turn.last,
            due=turn.due,
            at="gate" if turn.at == "gate" else "end",
            unmade=None if unmade is None else tuple(sorted(unmade)),
        )

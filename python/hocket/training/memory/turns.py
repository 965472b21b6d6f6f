"""Bookkeeping of turns that are open, in flight and due: that of one rank, the same on all. No I/O, no clock.

A *turn* of a bucket sums the gradients of one iteration or of several, is reduced by one launch, and is applied once. The native
`Readiness` launches by the schedule; a session waits for and applies what `ended` returns.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from hocket import _native
from hocket.artefacts import plan as artefact
from hocket.artefacts.plan import Due, Schedule
from hocket.errors import UsageError

Place = tuple[int, int, int, list[int]]
"""Place of a bucket: its open slot, the iterations summed there, turns that were reduced and not applied, and the iterations of
each turn that waits."""

Places = tuple[int, list[Place]]
"""Iteration of the period, and progress of each bucket's turns, for `_native.Readiness`."""

IMMEDIATE = (artefact.Turn(first=0, last=0, due=Due(iteration=0)),)
AT_GATES = (artefact.Turn(first=0, last=0, due=Due(iteration=0, at="gate")),)


def turns_of(schedule: Schedule, bucket: int) -> tuple[artefact.Turn, ...]:
    """Return a bucket's turns over a period."""
    if schedule.turns:
        return schedule.turns[bucket]
    return AT_GATES if schedule.overlap == "gates" else IMMEDIATE


def is_synchronous(schedule: Schedule) -> bool:
    """Return whether every gradient is applied by itself, in its own iteration.

    >>> late = artefact.Turn(first=0, last=0, due=Due(iteration=1))
    >>> is_synchronous(Schedule()), is_synchronous(Schedule(turns=((late,),)))
    (True, False)
    """
    turns = [turn for each in schedule.turns for turn in each]
    return all(turn.first == turn.last == turn.due.iteration for turn in turns)


def slots_for(plan: artefact.Plan, buckets: int) -> list[int]:
    """Return the slots of each bucket, whichever of the plan's schedules is in force."""
    needed = (_native.schedule_slots(each, buckets) for each in (plan.schedule, *plan.safer))
    return [max(each) for each in zip(*needed, strict=True)]


@dataclass(eq=False)
class Turn:
    """Gradients of some iterations in one slot of an arena.

    Attributes:
        last: its last iteration; None: it is open.
        due: the iteration at whose end it is applied, or at the gates of the forward after it.
        at: which of the two.
        iterations: number of iterations that it has summed.
        unmade: parameters whose gradient no rank has made in any of them, as far as votes are counted.
    """

    arena: int
    slot: int
    iterations: int = 0
    last: int | None = None
    due: int | None = None
    at: Literal["end", "gate"] = "end"
    unmade: frozenset[str] | None = None


class SavedTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slot: int
    iterations: int
    last: int | None = None
    due: int | None = None
    at: Literal["end", "gate"] = "end"
    unmade: tuple[str, ...] | None = None


class Saved(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of `Turns` between two iterations; `turns`: by arena, those that wait from the oldest on, and the open one."""

    made: int
    applied: tuple[int, ...]
    held: bool
    turns: tuple[tuple[SavedTurn, ...], ...]


def _saved(turn: Turn) -> SavedTurn:
    unmade = None if turn.unmade is None else tuple(sorted(turn.unmade))
    return SavedTurn(
        slot=turn.slot, iterations=turn.iterations, last=turn.last, due=turn.due, at=turn.at, unmade=unmade
    )


def _restored(arena: int, saved: SavedTurn) -> Turn:
    unmade = None if saved.unmade is None else frozenset(saved.unmade)
    return Turn(
        arena,
        saved.slot,
        iterations=saved.iterations,
        last=saved.last,
        due=saved.due,
        at=saved.at,
        unmade=unmade,
    )


class Turns:
    """Turns of a session, by arena: buckets that share memory have the same turns.

    Attributes:
        made: iterations whose gradients were summed.
        applied: iterations whose gradients were handed out to be applied; the least of all arenas.
    """

    def __init__(self, schedule: Schedule, arenas: Sequence[int]) -> None:
        """Begin with open turns. `arenas`: one bucket of each arena."""
        self._period = schedule.period
        self._turns = [
            {turn.last: (turn.due.iteration - turn.last, turn.due.at) for turn in turns_of(schedule, bucket)}
            for bucket in arenas
        ]
        slots = _native.schedule_slots(schedule, max(arenas, default=-1) + 1)
        self._slots = [slots[bucket] for bucket in arenas]
        self.open = [Turn(arena, 0) for arena in range(len(arenas))]
        self._waiting: list[deque[Turn]] = [deque() for _ in arenas]
        self._summed: list[Turn] = []
        self._held = False
        self._applied = [0] * len(arenas)
        self.made = 0

    @property
    def applied(self) -> int:
        return min(self._applied, default=self.made)

    @property
    def phase(self) -> int:
        """Iteration of the period that comes next."""
        return self.made % self._period

    @property
    def held(self) -> bool:
        """True if no turn ends."""
        return self._held

    @property
    def drained(self) -> bool:
        """True if no turn is in flight: the remaining ones are open."""
        return not any(self._waiting)

    def ended(self) -> list[Turn]:
        """Note that the backward of an iteration has ended; return the turns that are due now, at most one of each arena."""
        iteration, phase = self.made, self.made % self._period
        self.made += 1
        self._summed = list(self.open)
        due = []
        for arena, turn in enumerate(self._summed):
            turn.iterations += 1
            ends = self._turns[arena].get(phase)
            if ends is not None and not self._held:
                late, at = ends
                self._close(turn, iteration + late, at)
            if self._waiting[arena] and self._waiting[arena][0].due == iteration:
                due.append(self._apply(arena))
        return due

    def counted(self, unmade: Iterable[str]) -> None:
        """Note that the votes of the last ended iteration are counted: `unmade` are gradients that no rank has made in it."""
        never = frozenset(unmade)
        for turn in self._summed:
            turn.unmade = never if turn.unmade is None else turn.unmade & never
        self._summed = []

    @property
    def counts(self) -> bool:
        """True if votes of the last iteration that ended are still to be counted."""
        return bool(self._summed)

    def waits(self, arena: int) -> bool:
        """Return whether turns of the arena have ended that are not due yet."""
        return bool(self._waiting[arena])

    def unapplied(self, due: Sequence[Turn]) -> list[Turn]:
        """Return all turns that have ended, in the launch order of each arena. `due`: those of them that were handed out last, if
        they were not applied all the same."""
        return [*due, *(turn for waiting in self._waiting for turn in waiting)]

    def places(self, launched: Sequence[Turn]) -> list[Place]:
        """Return by arena the place where a new `Readiness` goes on, before which all of these turns were launched."""
        counts = Counter(turn.arena for turn in launched)
        return [(turn.slot, turn.iterations, counts[turn.arena], []) for turn in self.open]

    def hold(self) -> None:
        """End no more turns: those in flight become due, and open ones go on until `flush`."""
        self._held = True

    def flush(self) -> list[list[Turn]]:
        """Return all turns that were not applied, in the order of application: each list has at most one turn of each arena."""
        self._held = False
        for turn in list(self.open):
            if turn.iterations:
                self._close(turn, self.made - 1)
        rounds: list[list[Turn]] = []
        while not self.drained:
            left = [arena for arena, waiting in enumerate(self._waiting) if waiting]
            rounds.append([self._apply(arena) for arena in left])
        return rounds

    def saved(self) -> Saved:
        """Return the state, once votes are counted. UsageError: they are not."""
        if self.counts:
            raise UsageError("turns are saved when the votes of the last iteration are counted")
        turns = [[*waiting, turn] for waiting, turn in zip(self._waiting, self.open, strict=True)]
        return Saved(
            made=self.made,
            applied=tuple(self._applied),
            held=self._held,
            turns=tuple(tuple(_saved(turn) for turn in own) for own in turns),
        )

    def restore(self, saved: Saved) -> None:
        """Restore a saved state. UsageError: it has another number of arenas, or turns that cannot be."""
        if not len(saved.turns) == len(saved.applied) == len(self.open) or saved.made < 0:
            raise UsageError(f"saved turns of {len(saved.turns)} arenas, and there are {len(self.open)}")
        self.made, self._applied, self._held = saved.made, list(saved.applied), saved.held
        for arena, own in enumerate(saved.turns):
            slots = self._slots[arena]
            if not 1 <= len(own) <= slots + 1 or any(not 0 <= turn.slot < slots for turn in own):
                raise UsageError(f"saved turns of arena {arena} do not fit its {slots} slots")
            if sum(turn.iterations for turn in own) + saved.applied[arena] != saved.made:
                raise UsageError(f"saved turns of arena {arena} are not of all iterations")
            *waiting, last = (_restored(arena, turn) for turn in own)
            self._waiting[arena], self.open[arena] = deque(waiting), last
        self._summed = []

    def _close(self, turn: Turn, due: int, at: Literal["end", "gate"] = "end") -> None:
        turn.last, turn.due, turn.at = self.made - 1, due, at
        self._waiting[turn.arena].append(turn)
        self.open[turn.arena] = Turn(turn.arena, (turn.slot + 1) % self._slots[turn.arena])

    def _apply(self, arena: int) -> Turn:
        turn = self._waiting[arena].popleft()
        self._applied[arena] += turn.iterations
        return turn

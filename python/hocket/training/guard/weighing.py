"""Weights of ranks that step alone: what each rank's progress counts by in the mean that steps the anchor.

A rank sends its progress times its weight over a scale, which is the same on all ranks, and its weight with the votes of the same
iteration. The sum of all ranks, which their program divides by their number, becomes sum of weighted progress / sum of weights,
over the ranks of the exchange, when all weights are here. The scale is near the weights, so that 16-bit floats hold what travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from hocket._native import LiveTurn
from hocket.artefacts.plan import Outer
from hocket.training.guard.drift import Report
from hocket.training.memory.framework import Workload


class Sent(Struct, kw_only=True, forbid_unknown_fields=True):
    """Departure of turns, each an arena and its slot. `told`: this rank's votes have its weight; `weights`: by rank, once votes are
    counted."""

    turns: tuple[tuple[int, int], ...]
    weight: float
    scale: float
    told: bool
    weights: tuple[tuple[int, float], ...] = ()

    @property
    def own(self) -> float:
        """Factor of what this rank sent."""
        return self.weight / self.scale


class SavedWeighing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a `Weighing`. `opened`: by arena, the weight since its last departure."""

    opened: tuple[tuple[int, float], ...]
    scale: float
    sent: tuple[Sent, ...]


class Weighing:
    """Weights of one session's turns. `by`: what counts, ranks if they have stepped at all; `workload`: what this rank trains on,
    if that does. `whole_steps`: what the step under way trains on does not count yet, since turns may leave in its middle."""

    def __init__(
        self,
        by: Literal["ranks", "samples", "logged"],
        workload: Workload | None,
        *,
        whole_steps: bool = False,
    ) -> None:
        self.by, self._workload = by, workload
        self._logged = 0.0
        self._steps = 0
        self._ended: float | None = 0.0 if whole_steps else None
        """Total weight with the last whole step, where others do not count."""
        self._left: dict[int, float] = {}
        """By arena, the total weight when it left last."""
        self._scale = 1.0
        self._sent: list[Sent] = []

    def begin(self, arenas: Iterable[int], period: int) -> None:
        """Begin turns of another schedule, or among other ranks: all that was made is in the anchor."""
        self._left = dict.fromkeys(arenas, self._total)
        self._scale, self._sent = 1.0 if self.by == "ranks" else float(period), []

    def logged(self, weight: float) -> None:
        """Take a weight that the script logs."""
        self._logged += weight

    def stepped(self) -> None:
        """Note that a step has ended."""
        self._steps += 1
        if self._ended is not None:
            self._ended = self._now

    def end(self) -> None:
        if self._workload is not None:
            self._workload.stop()

    @property
    def _total(self) -> float:
        return self._now if self._ended is None else self._ended

    @property
    def _now(self) -> float:
        if self.by == "ranks":
            return float(self._steps)
        return self._logged if self._workload is None else float(self._workload.samples)

    def leaving(self) -> float:
        """Return the weight that is to travel with this rank's votes: of what has left with this iteration, or of all that is open,
        as it may leave when an iteration has ended."""
        waiting = [each for each in self._sent if not each.weights]
        for each in waiting:
            each.told = True
        return waiting[0].weight if waiting else self._opened(self._left)

    def _opened(self, arenas: Iterable[int]) -> float:
        """Return the weight since these arenas left, the largest of them, as f32 has it."""
        total = self._total
        since = max((total - self._left[each] for each in arenas), default=0.0)
        return float(np.float32(min(since, 1.0) if self.by == "ranks" else since))

    def depart(self, turns: Sequence[LiveTurn], *, told: bool) -> float:
        """Note that these turns leave; return the factor of this rank's progress. `told`: votes with the weight of all that is open
        were cast just before."""
        arenas = [turn.arena for turn in turns]
        sent = Sent(
            turns=tuple((turn.arena, turn.slot) for turn in turns),
            weight=self._opened(arenas),
            scale=self._scale,
            told=told,
        )
        self._sent.append(sent)
        self._left |= dict.fromkeys(arenas, self._total)
        return sent.own

    def own(self, turn: LiveTurn) -> float:
        """Return the factor by which this rank's progress in a turn that has left was multiplied."""
        return self._of(turn).own

    def counted(self, reports: Mapping[int, Report]) -> None:
        """Take the weights of all ranks with their votes."""
        # Votes of an iteration are counted in one of the next, in which others may have left already.
        waiting = [each for each in self._sent if each.told and not each.weights]
        if not waiting or not reports:
            return
        weights = tuple((rank, each.weight) for rank, each in reports.items())
        for each in waiting:
            each.weights = weights
        mean = sum(weight for _, weight in weights) / len(weights)
        self._scale = mean if mean > 0 else self._scale

    def waits(self, turns: Iterable[LiveTurn]) -> bool:
        """Return whether votes are to be counted before the anchor may take these turns."""
        return any(not self._of(turn).weights for turn in turns)

    def factor(self, turn: LiveTurn, ranks: Sequence[int]) -> float:
        """Return the factor that makes the mean of a turn over these ranks the weighted one; 0: no rank had anything."""
        sent = self._of(turn)
        weights = dict(sent.weights)
        whole = sum(weights[rank] for rank in ranks)
        return len(ranks) * sent.scale / whole if whole > 0 else 0.0

    def arrived(self, turns: Iterable[LiveTurn]) -> None:
        """Forget turns that the anchor has taken."""
        for turn in turns:
            sent = self._of(turn)
            sent.turns = tuple(each for each in sent.turns if each != (turn.arena, turn.slot))
        self._sent = [each for each in self._sent if each.turns]

    def saved(self) -> SavedWeighing:
        total = self._total
        opened = tuple((arena, total - left) for arena, left in self._left.items())
        return SavedWeighing(opened=opened, scale=self._scale, sent=tuple(self._sent))

    def restore(self, saved: SavedWeighing) -> None:
        total = self._total
        self._left = {arena: total - opened for arena, opened in saved.opened}
        self._scale, self._sent = saved.scale, list(saved.sent)

    def _of(self, turn: LiveTurn) -> Sent:
        # The oldest first: a slot is filled anew only after its turn has arrived.
        return next(each for each in self._sent if (turn.arena, turn.slot) in each.turns)


def weighing_of(outer: Outer, workload: Callable[[], Workload]) -> Weighing | None:
    """Return the weights of ranks; None: all count alike."""
    whole_steps = outer.grace_s is not None
    if outer.weights == "samples":
        return Weighing("samples", workload(), whole_steps=whole_steps)
    if outer.weights == "logged" or whole_steps:
        return Weighing(outer.weights, None, whole_steps=whole_steps)
    return None

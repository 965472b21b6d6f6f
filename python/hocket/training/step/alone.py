"""Iterations of ranks that step alone between exchanges: what leaves with one is how far this rank came since it sent last.

An iteration ends with the optimizer's step, and turns are of such iterations. Most exchange nothing, and cost the step nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hocket.artefacts.plan import Outer
from hocket.training.memory.device import made
from hocket.training.memory.framework import Framework

if TYPE_CHECKING:
    from hocket.training.step.updates import Updates


class Alone:
    """Departures of one session's turns. `outer` steps the anchor; `departed`: arenas whose turn ends with the last iteration that
    exchanged something, by the schedule."""

    def __init__(self, framework: Framework, updates: Updates, outer: Outer) -> None:
        """Begin with what this rank has before its next step."""
        self._framework, self._updates, self.outer = framework, updates, outer
        self.departed: list[int] = []
        self._counted: tuple[object, dict[int, int]] = None, {}
        """What counts launches, and how often each was launched, by number, when `sent` was asked last."""
        self.begin()

    def begin(self) -> None:
        """Begin anew: the script has stepped together with the other ranks since."""
        self._framework.local.begin(self.outer)

    @property
    def exchanges(self) -> bool:
        """True if the iteration that ends next brings or sends something."""
        readiness = self._updates.readiness
        due = any(turn.due == readiness.made for own in readiness.turns for turn in own)
        return due or readiness.held or bool(self._ending)

    def ends(self) -> None:
        """Write how far this rank came into turns that end with this iteration."""
        self.departed = self._ending
        self._depart(self.departed)

    def sent(self) -> list[int]:
        """Return the programs that were launched since the last call, in the order of their buckets: between two iterations, the
        same ones on all ranks."""
        readiness, (counted, before), found = self._updates.readiness, self._counted, []
        now = {each.number: readiness.progress(each.number)[1] for each in self._updates.launches}
        for each in self._updates.launches:
            since = before[each.number] if counted is readiness else 0
            found += [each.program] * (now[each.number] - since)
        self._counted = readiness, now
        return found

    def flushes(self) -> None:
        """Write it into all turns that have an iteration."""
        turns = self._updates.readiness.turns
        self._depart(arena for arena, (*_, opened) in enumerate(turns) if opened.iterations)

    @property
    def _ending(self) -> list[int]:
        """Arenas whose open turn ends with the next iteration, by the schedule."""
        updates = self._updates
        if updates.readiness.held:
            return []
        at, turns = updates.readiness.made % updates.schedule.period, updates.schedule.turns
        return [
            arena
            for arena, bucket in enumerate(updates.buckets)
            if any(turn.last % updates.schedule.period == at for turn in turns[bucket.launches[0].number])
        ]

    def _depart(self, arenas: Iterable[int]) -> None:
        turns = self._updates.readiness.turns
        for arena in arenas:
            slots, (*under_way, opened) = self._updates.buckets[arena].slots, turns[arena]
            self._framework.local.depart(slots[opened.slot], [slots[turn.slot] for turn in under_way])
            made(self._framework.device, [slots[opened.slot].memory])

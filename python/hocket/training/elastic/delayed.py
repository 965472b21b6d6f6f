"""Merged or late gradients in a job whose ranks may be lost.

A rank's own gradients stay in their slots until their turn is applied; sums are made in other memory. So when ranks are lost, the
remaining ranks launch all turns again that have ended and are not applied, the oldest first: they become means over those ranks.
Open turns go on. Some ranks may be an iteration ahead of others: they have the same turns before that, in the same order.

Before ranks join or leave, all gradients that were made are applied. The ranks agree on it by votes. From the iteration of that
agreement no turn ends; turns in flight become due, and then the open ones end early, in an iteration in which nothing else is due.
The epoch of members begins after that iteration.

Votes are counted in their own iteration, since all ranks wait for one another at its end anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hocket.artefacts.plan import Schedule
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.elastic.areas import areas_of, loaded
from hocket.training.elastic.refusals import check_libraries
from hocket.training.elastic.session import ElasticSession
from hocket.training.memory.buckets import CompiledBucket, LoadedBucket
from hocket.training.memory.framework import Framework
from hocket.training.memory.turns import Places, Turn, is_synchronous
from hocket.training.step.delayed import DelayedSession

log = logging.getLogger("hocket.elastic")


class ElasticDelayedSession(ElasticSession, DelayedSession):
    """Session with turns of buckets whose sums stand for all ranks, or for none."""

    def __init__(self, framework: Framework, **given: Any) -> None:
        self._due: list[Turn] = []
        """Turns that the iteration under way applies, until it stands; of each arena, the oldest first."""
        self._standing: list[Turn] = []
        """Turns that the iteration applies, since it stands."""
        self._planned = False
        """True if other members wait until all gradients that were made are applied."""
        self._flushing = False
        super().__init__(framework, **given)
        if self.job.settings.sentinel and self.job.rank == 0 and not is_synchronous(self.schedule):
            log.warning(
                "gradients are merged or late from the first iteration on, and neither guard nor sentinel watches that: "
                "they do not work in elastic jobs yet"
            )

    def flush(self) -> None:
        """Apply all turns, in a step of the job without a backward: applied by all ranks that go on, or by none."""
        self._check_applied("flush")
        self.saves.settled()
        # Gradients that the last step applied may still be there.
        self.drop_gradients()
        rounds = self.turns.flush()
        if not rounds:
            return
        self._flushing = True
        self._due = [turn for due in rounds for turn in due]
        with self._noting_what_is_missed():
            self._cast(())
            self.readiness.flush()
        self._reduce(())
        self._standing = []
        self.companion.step_ended()
        self.iteration += 1
        for due in rounds:
            self._show(due)
            self.framework.step()
            self.drop_gradients()
        self._flushing = False

    def saved(self) -> SavedSession:
        """Return both base classes' state. Slots have this rank's own gradients, which are reduced again after resuming."""
        self._check_applied("state_dict")
        return self._with_turns(super().saved(), [0] * len(self.launches))

    def go_on_in(self, **given: Any) -> None:
        """Go on among the ranks that met, when no turn is open or in flight."""
        self._made, self._applied = self.counts
        super().go_on_in(**given)

    def _placed(self, buckets: Sequence[CompiledBucket], epoch: int) -> list[LoadedBucket]:
        check_libraries(buckets)
        self._areas = areas_of(buckets, self.engine, self.framework.array, self._slots(len(buckets)))
        placed = loaded(self._areas, buckets, self.engine, f" of epoch {epoch}" if epoch else "")
        self._arrange(placed, [area.sums for area in self._areas])
        return placed

    def _next_schedule(self) -> Schedule:
        """Return the plan's schedule without asking a sentinel: its statistics would cover only the ranks that it began with."""
        return self.source.plan(self.source.epochs.current).schedule

    def _layout(self) -> str:
        """Return a layout that differs from other jobs', since turns in flight are saved in another way."""
        return f"elastic {super()._layout()}"

    def _count_gradients(self, _places: Places | None = None, *, moves: bool = True) -> None:
        """Launch again the turns that were in flight, then count gradients."""
        unapplied = self.turns.unapplied(self._due)
        with self._noting_what_is_missed():
            for turn in unapplied:
                for launch in self.buckets[turn.arena].launches:
                    self.engine.launch(launch.program, turn.slot, 1 / turn.iterations)
        of_arena = self.turns.places(unapplied)
        places = [of_arena[self._arena_of[launch.number]] for launch in self.launches]
        super()._count_gradients((self.turns.phase, places), moves=moves)
        if self.turns.held:
            self.readiness.hold()

    def _given(self) -> list[LoadedBucket]:
        return DelayedSession._given(self)

    def _ended(self) -> None:
        self._first.check()
        self._due = self.turns.ended()
        # One update per step: the open turn waits for a backward with which nothing else is due.
        if self.turns.held and not self._due and self.turns.drained:
            self._due = [turn for due in self.turns.flush() for turn in due]
            self.readiness.flush()

    def _wait_for_sums(self) -> None:
        """Wait for the sums of turns that are due. When all votes are here, all ranks have launched those turns."""
        self._votes.count(self.job.settings.timeout_s, self._check_finished)
        for turn in self._due:
            for launch in self.buckets[turn.arena].launches:
                if self.turns.waits(turn.arena):
                    self.readiness.wait(launch.number, self.job.settings.timeout_s)
                else:
                    self._wait(launch.program)

    def _agreed(self) -> int:
        """Return another epoch only where no turn is open or in flight then, and not between two steps of the script."""
        agreed = super()._agreed()
        self._planned = self._awaited or agreed != self._in_force
        clean = self.turns.made == self.turns.applied
        return agreed if clean and not self._flushing else self._in_force

    def _take(self) -> None:
        self._whole = False
        self._begins = self.source.decide(self._voted)
        if self.turns.counts:
            self.turns.counted(name for name in self._unmade if not self._votes.made(name))
        for turn in self._due:
            for launch in self.buckets[turn.arena].launches:
                self.readiness.applied(launch.number)
        self._standing, self._due = self._due, []
        if self._planned and self.turns.made != self.turns.applied:
            self.turns.hold()
            self.readiness.hold()

    def _note_applied(self) -> None:
        """No-op: `_take` marks turns as applied."""

    def _launch_again(self) -> None:
        """No-op: `_count_gradients` launches turns again."""

    def _hand_out(self) -> None:
        due, self._standing = self._standing, []
        self._show(due)
        if not self._leaves:
            self._begin_next()

    def _take_turn(self, turn: Turn) -> None:
        """No-op: the turn was taken with the step."""

    def _stepped(self) -> None:
        if self._flushing:
            DelayedSession._stepped(self)
        else:
            super()._stepped()

    def _meet_newcomers(self) -> None:
        if self.turns.made == self.turns.applied:
            super()._meet_newcomers()

    def _await_all(self) -> None:
        """No-op: all scripts have ended, so no rank waits for anything."""

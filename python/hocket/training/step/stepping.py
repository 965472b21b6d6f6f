"""Iterations of ranks that step alone between exchanges, each of which ends with a step of the optimizer, or in its middle, where a
stand-in sends what a late rank has."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hocket._native import LiveTurn
from hocket.artefacts.plan import Outer
from hocket.errors import UsageError
from hocket.refusals import DEVICE, GRACE, refused
from hocket.training.step.alone import Alone
from hocket.training.step.stand_in import StandIn

if TYPE_CHECKING:
    from hocket.training.step.step import Step

_numbers = itertools.count()
"""Numbers of this process's models with stand-ins: equal on all ranks, which distribute their models in the same order."""


class Stepping:
    """Iterations of one step whose ranks step alone. `stand_in`: that of this rank, if exchanges do not wait for late ones."""

    def __init__(self, step: Step) -> None:
        """Begin among ranks that have met, before programs are loaded. UsageError: exchanges cannot go on without a late rank."""
        self._step = step
        self._went = 0
        """Iterations that have ended in the middle of this rank's step."""
        self.stand_in: StandIn | None = None
        outer = step.plan.schedule.outer
        if outer is None or outer.grace_s is None:
            return
        if step.commit.loses_late_ranks:
            if outer.quorum is not None:
                raise UsageError(
                    f"local: quorum={outer.quorum}: an elastic job's exchanges stand with its least number of ranks\n"
                    "hint: leave it out: `hocket run --elastic MIN:MAX` says how many"
                )
            return
        check_stands_in(outer, step.job.world, on_device=step.framework.device is not None)
        self.stand_in = StandIn(
            step.job,
            self._leave,
            name=f"exchanges/{next(_numbers)}",
            grace_s=outer.grace_s,
            quorum=outer.quorum or 1,
        )
        step.framework.local.before_step = self.stand_in.step_begins

    def start(self) -> None:
        """Start, now that programs are loaded."""
        if self.stand_in is not None:
            self.stand_in.start()

    def close(self) -> None:
        """End: no exchange follows."""
        if self.stand_in is not None:
            self._step.framework.local.before_step = None
            self.stand_in.close()

    def stepped(self, alone: Alone) -> None:
        """End the iterations that end with a step of the optimizer."""
        step = self._step
        if step.delays is not None and step.delays.awaits_step:
            # The last step before steps are local applies what all ranks have reduced.
            step.delays.stepped()
            alone.begin()
            return
        schedule, iterations = step.updates.schedule, alone.stepped()
        if self._went_without():
            # The step was of a turn that has ended: ranks are in the same iteration again.
            iterations = 0
            if alone.pace is not None and alone.period_ends:
                alone.pace.period_ended()
        for _ in range(iterations):
            self._iterated(alone)
            if alone.pace is not None and (alone.period_ends or schedule is not step.updates.schedule):
                # What follows begins with the next step: newcomers may come, or another schedule has begun.
                alone.pace.period_ended()
                break
        if alone.pace is not None:
            alone.pace.resumes()

    @contextlib.contextmanager
    def releasing(self) -> Iterator[None]:
        """Let a stand-in send this rank's part again after the body, with which a step ends."""
        try:
            yield
        finally:
            if self.stand_in is not None:
                self.stand_in.step_ended()

    @contextlib.contextmanager
    def between(self) -> Iterator[None]:
        """Keep turns as they are in the body, in which the script's thread is between two steps."""
        if self.stand_in is None:
            yield
            return
        with self.stand_in.changed:
            self._went_without()
            yield

    def _iterated(self, alone: Alone) -> None:
        """End an iteration of the schedule."""
        step = self._step
        if alone.exchanges or step.ends_turns:
            if self.stand_in is not None:
                self.stand_in.came()
                alone.late = False
            step.begin_iteration()
            step.end_iteration(barrier=True)
        else:
            self._pass()
            self._passed()

    def _pass(self) -> None:
        """End an iteration that exchanges nothing."""
        step = self._step
        if step.delays is not None and step.delays.drift is not None:
            step.delays.drift.passed()
        step.updates.passed()
        step.iteration += 1

    def _passed(self) -> None:
        step = self._step
        step.progress.step_ended()
        if step.source.autopilot is not None:
            step.source.autopilot.step_ended()

    def _leave(self) -> Sequence[LiveTurn]:
        """Let this rank's part of the next exchange leave without it, in another thread than its own, while it is in a step; return
        the turns that are due with it."""
        step, alone = self._step, self._step.updates.local
        if alone is None:
            return ()
        while not alone.exchanges and not step.ends_turns:
            self._pass()
            self._went += 1
        alone.late = True
        with step.naming():
            step.companion.begin()
        return step.reduce(barrier=True)

    def _went_without(self) -> bool:
        """Take what an exchange has brought that this rank's part left for without it; return whether there was one."""
        due = None if self.stand_in is None else self.stand_in.taken()
        if due is None:
            return False
        for _ in range(self._went):
            self._passed()
        self._went = 0
        self._step.note_begin()
        self._step.end_iteration(barrier=True, left=due)
        return True


def check_stands_in(outer: Outer, world: int, *, on_device: bool) -> None:
    """Raise UsageError if there are too few ranks, or a thread cannot send what a late one has."""
    if (outer.quorum or 1) > world:
        raise UsageError(f"local: quorum={outer.quorum}: there are {world} ranks")
    if on_device:
        raise refused(GRACE, DEVICE, grace_s=f"{outer.grace_s:g}")

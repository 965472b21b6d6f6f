"""Watch over merged and late gradients: each mean is applied once, and a save without open gradients is noticed.

`oversight` decides which of the plan's schedules is in force: a session begins with synchronous updates, and retreats to safer ones
when training no longer goes as it did, from the same iteration on all ranks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hocket._native import LiveTurn
from hocket.artefacts.local import every
from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.schedule_check import check_workload
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.planning.walk import rate_factor
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.checkpoint.saved import SavedDelays
from hocket.training.checkpoint.saves import Saves
from hocket.training.checkpoint.slots import slots_of
from hocket.training.guard.gauge import Gauge
from hocket.training.guard.oversight import Oversight
from hocket.training.memory.anchor import Anchor, Arrival, LocalAnchor
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import read
from hocket.training.memory.framework import Framework, Workload
from hocket.training.memory.turns import is_synchronous
from hocket.training.memory.values import squared_norm
from hocket.training.step.drift import Drift, Record
from hocket.training.step.updates import Updates
from hocket.training.step.votes import Ballot


class FirstIteration:
    """Check of a session's first iteration, if its plan says for which workload it was made."""

    def __init__(self, framework: Framework, plan: Plan, rank: int) -> None:
        made_for_some = plan.schedule.turns and (plan.batch, plan.accumulation) != (None, None)
        self._seen: Workload | None = framework.workload() if made_for_some else None
        self._plan, self._rank = plan, rank

    def check(self) -> None:
        """Check after the first backward, when nothing is applied yet. ArtefactError: the plan was made for another iteration."""
        seen, self._seen = self._seen, None
        if seen is not None:
            seen.stop()
            check_workload(self._plan, batch=seen.batch, accumulation=seen.backwards, rank=self._rank)


class Delays:
    """Watch of one session whose gradients may be merged or late.

    Attributes:
        sentinel: the oversight, if schedules are judged and the plan's is not synchronous.
        drift: drift of ranks that step alone, if they do.
        reschedules: another schedule follows when all gradients are applied.
        retreats: ranks have agreed that the schedule in force ends.
    """

    first: FirstIteration
    saves: Saves

    def __init__(
        self,
        framework: Framework,
        updates: Updates,
        job: Job,
        gauge: Gauge,
        *,
        watched: bool,
        trace: Path | None,
        record: Record,
    ) -> None:
        """Begin before gates, which put zero_grad off. `watched`: merged and late gradients are judged. `trace`: directory of the
        model's trace; `record`: for statistics."""
        self._framework, self._updates, self._job, self._gauge = framework, updates, job, gauge
        self._watched, self._trace, self._record = watched, trace, record
        self.sentinel: Oversight | None = None
        self.drift: Drift | None = None
        self.reschedules = self.retreats = False
        self._flushes = self._applies = False
        """True if means are given between two steps, and if the next step applies means."""
        self._awaits_step = False
        """True if means were given, and the optimizer has not stepped since."""
        self._gauged = False
        self._norms2: dict[int, float] = {}
        self._arrivals: list[list[Arrival]] = []
        framework.on_zero_grad(self._zeroed)

    def watch(self, plan: Plan) -> None:
        """Watch the script, now that buckets are loaded."""
        if self._updates.local is None:
            self._framework.rates({})
        self.first = FirstIteration(self._framework, plan, self._job.rank)
        self.saves = Saves(self._framework, lambda: self._updates.counts)

    def schedule(self, plan: Plan, iteration: int, epoch: int) -> Schedule:
        """Return the schedule of iterations from now on. All ranks call it at the same iteration."""
        self.reschedules = self.retreats = False
        self._norms2 = {}
        if plan.schedule.steps == "local":
            # Means are of how far ranks came, which the sentinel would take for gradients.
            self.sentinel = None
            if self.drift is None:
                self.drift = Drift(self._framework, self._updates, self._job, self._trace, self._record)
            return self.drift.schedule(plan)
        self.drift = None
        # Where the plan's schedule changes nothing, there is nothing to watch.
        if self.sentinel is None and self._watched and not is_synchronous(plan.schedule):
            self.sentinel = Oversight(self._framework, self._job, self._gauge, self._trace)
        return plan.schedule if self.sentinel is None else self.sentinel.schedule(plan, iteration, epoch)

    def tell(self, autopilot: Stopwatch, plan: Plan) -> None:
        """Tell the autopilot which schedule its steps follow, and whether it is the plan's."""
        schedule, late = self._updates.schedule, not is_synchronous(plan.schedule)
        learns = late and (
            (self.sentinel is not None and self.sentinel.learns)
            or (self.drift is not None and self.drift.grows(plan))
        )
        in_step = is_synchronous(schedule) or (schedule.steps == "local" and every(schedule) == 1)
        ended = late and self.retreated and in_step
        autopilot.scheduled(schedule, counts=not learns, retreated=ended)

    @property
    def retreated(self) -> bool:
        """True if the sentinel has ended a schedule, or that of ranks that step alone."""
        drifted = self.drift is not None and self.drift.most is not None
        return drifted or (self.sentinel is not None and self.sentinel.retreated)

    @property
    def alarmed(self) -> bool:
        """True if this rank sees that training no longer goes as it did."""
        return self.sentinel is not None and self.sentinel.alarm is not None

    def logged(self, loss: float) -> None:
        for guard in (self.sentinel, self.drift):
            if guard is not None:
                guard.logged(loss)

    def counted(self, votes: Ballot, plan: Plan, iteration: int, epoch: int) -> None:
        """Act on votes that are counted: the same on all ranks."""
        if votes.retreat and self.sentinel is not None and not self.retreats:
            self.retreats = self.reschedules = True
            self.sentinel.retreat(self._updates.schedule, plan, iteration, epoch)
        if self._updates.local is not None:
            self._updates.local.counted(votes.reports, votes.reporter)
        if self.drift is not None and self.drift.counted(
            votes.reports, votes.reporter, plan, (iteration, epoch)
        ):
            self.retreats = self.reschedules = True

    def check_applied(self, call: str) -> None:
        """Raise UsageError if the optimizer has not stepped with the means that were given last."""
        if self._awaits_step:
            raise UsageError(
                f"{call}: the last backward's gradients were not applied\nhint: optimizer.step() first"
            )

    def _zeroed(self, names: Sequence[str]) -> None:
        if self._updates.own is None:
            self._updates.means.zeroed(names, self._updates.shown)
        else:
            gradients, means = self._framework.anchor.gradients, self._updates.means
            for name in names:
                # Zeros in the place of a mean that was given before ranks went ahead of an anchor.
                if means.is_due(name):
                    gradients.detach(name)
            gradients.zeroed(names)

    def backward_began(self) -> None:
        if self._awaits_step:
            raise UsageError(
                "a backward began before optimizer.step() applied the gradients of the last one, which are of a whole turn\n"
                "hint: one step after each backward; `with model.no_sync():` around those that only accumulate"
            )
        self.saves.training()

    def backward_ended(self) -> None:
        """Look at complete gradients before any of them leaves. ArtefactError: the plan was made for another iteration."""
        self.first.check()
        self._framework.scales.made(*self._updates.counts)
        if self.drift is not None and self._updates.local is not None:
            self.drift.departed(self._updates.local.departed)
        self._gauged = self.sentinel is not None and self.sentinel.gauges(self._updates.readiness.made)
        if self._gauged:
            read(self._framework.device, (bucket.memory for bucket in self._updates.filling))
            self._gauge.made(self._updates.filling)

    def give(self, now: Sequence[LiveTurn], later: Sequence[LiveTurn]) -> None:
        """Note that the optimizer is given the means of some turns now, those of others at gates, and no other gradients."""
        updates, given = self._updates, {turn.arena for turn in now}
        self._applies = True
        if updates.own is not None:
            self._awaits_step = updates.local is None
            return
        factors: dict[str, float] = {}
        for turn in (*now, *later):
            factor = rate_factor(updates.schedule.rate, turn.iterations)
            factors |= dict.fromkeys(updates.buckets[turn.arena].names, factor)
        for at, bucket in enumerate(updates.buckets):
            for name in () if at in given else bucket.names:
                self._framework.drop(name)
        self._framework.rates(factors)
        self._awaits_step = bool(factors)

    def arrived(self, due: Sequence[LiveTurn], unmade: Mapping[int, Collection[str]]) -> None:
        """Let the optimizer's next step take the means that are here, where own gradients go first."""
        updates, own = self._updates, self._updates.own
        if own is None:
            return
        left = updates.readiness.turns
        arrivals = [
            own.arrival(
                turn,
                updates.buckets[turn.arena],
                updates.means.of[turn.arena][turn.slot],
                unmade=unmade[turn.arena],
                rate=updates.schedule.rate,
                left=left[turn.arena],
            )
            for turn in due
        ]
        if updates.local is not None:
            arrivals = updates.local.weighed(arrivals, due)
        iteration = updates.counts[0] - 1
        if self.drift is not None and self.drift.discards:
            self._framework.local.discard()
        elif updates.local is not None:
            self._framework.local.arrive(arrivals, lacks=own.lacks(iteration))
        if self._flushes:
            self._arrivals.append(arrivals)
        elif updates.local is None:
            self._applies = bool(arrivals)
            self._framework.anchor.next_step(iteration, arrivals, lacks=own.lacks(iteration))

    @contextlib.contextmanager
    def flushing(self) -> Iterator[None]:
        """Take means in the body without steps of own gradients."""
        self._flushes = True
        if self.drift is not None:
            # Turns that end early are no exchanges to be judged.
            self.drift.report = None
        try:
            yield
        finally:
            self._flushes = False

    def flushed(self) -> int:
        """Apply the means that were given last, without a backward before, where own gradients go first; return the number of
        updates."""
        arrivals, self._arrivals = self._arrivals, []
        self._awaits_step = False
        if self._updates.own is None:
            return 0
        if self._updates.local is not None:
            # Each was taken as it came.
            self._framework.local.settle()
            return 0
        self._framework.anchor.settle(arrivals)
        return len(arrivals)

    @property
    def awaits_step(self) -> bool:
        """True if means were given, or own gradients, and the optimizer has not stepped since."""
        return self._awaits_step

    def stepped(self) -> bool:
        """Note a step of the optimizer; return whether it applied means."""
        applied, self._awaits_step = self._awaits_step and self._applies, False
        return applied

    def given(self, turn: LiveTurn, mean: LoadedBucket) -> None:
        """Note that the mean of a turn is there."""
        if self.drift is not None:
            local = self._updates.local
            self.drift.given(turn, mean, 1.0 if local is None else local.factor(turn))
            return
        scales, iterations = self._framework.scales, _iterations(self._updates, turn)
        if self._looks:
            self._norms2[turn.arena] = squared_norm(mean, self._framework) / scales.of(iterations[-1]) ** 2
        if self._updates.own is None:
            scales.give(mean, iterations)

    def all_given(self) -> None:
        """Show the sentinel the norm of all gradients as applied last: buckets that are not due now keep their old norm."""
        if self.drift is not None:
            self.drift.all_given(self._updates.counts[0])
        if self.sentinel is None or not self._looks:
            return
        learned = self.sentinel.learns
        norm2 = sum(self._norms2.values())
        # What overflows is left out where a scaler is used.
        usual = not self._framework.scales.used or math.isfinite(norm2)
        if len(self._norms2) == len(self._updates.buckets) and usual:
            self.sentinel.see(math.sqrt(norm2))
        # The same values on all ranks, so all have seen enough of them now.
        self.reschedules = self.reschedules or (learned and not self.sentinel.learns)

    def gauge(self, due: Sequence[LiveTurn]) -> None:
        """Give the gauge the means of the gradients that were copied, unless other iterations are in them."""
        if not self._gauged:
            return
        means = self._updates.means.of
        if len(due) == len(means) and all(turn.iterations == 1 for turn in due):
            scale = self._framework.scales.of(_iterations(self._updates, due[0])[-1])
            self._gauge.reduced([means[turn.arena][turn.slot] for turn in due], scale)
        else:
            self._gauge.forget()

    def saved(self, layout: str, reduced: Sequence[int]) -> SavedDelays:
        """Return the state. `reduced`: by launch, turns whose slots have their means."""
        self.saves.settled()
        updates = self._updates
        turns = updates.unmade.saved(updates.readiness)
        read(self._framework.device, (slot.memory for bucket in updates.buckets for slot in bucket.slots))
        return SavedDelays(
            layout=layout,
            turns=turns,
            reduced=tuple(reduced),
            slots=slots_of(updates.buckets, turns, updates.shown),
            schedule=updates.schedule,
            retreats=self.retreats,
            reschedules=self.reschedules,
            oversight=None if self.sentinel is None else self.sentinel.saved(),
            norms2=tuple(self._norms2.items()),
            own=np.empty(0, np.uint8) if updates.own is None else self._anchor.saved(),
            own_unmade=() if updates.own is None else updates.own.saved(),
            scales=tuple(self._framework.scales.saved().items()),
            drift=None if self.drift is None else self.drift.saved(),
            weighing=None if updates.local is None else updates.local.saved(),
        )

    def restore(self, saved: SavedDelays) -> None:
        """Restore the state; that of turns is restored by `Updates`."""
        if self.sentinel is not None and saved.oversight is not None:
            self.sentinel.restore(saved.oversight)
            self.sentinel.watch_as(saved.schedule)
        if self.drift is not None and saved.drift is not None:
            self.drift.restore(saved.drift)
        if self._updates.local is not None:
            self._updates.local.restore(saved.weighing)
        self.retreats, self.reschedules = saved.retreats, saved.reschedules
        self._norms2 = dict(saved.norms2)
        self._framework.scales.restore(dict(saved.scales))

    @property
    def _anchor(self) -> Anchor | LocalAnchor:
        """Anchor ahead of which ranks train."""
        return self._framework.anchor if self._updates.local is None else self._framework.local

    @property
    def _looks(self) -> bool:
        """True if a sentinel wants to see applied gradients."""
        return self.sentinel is not None and self.sentinel.looks and not self.retreats


def _iterations(updates: Updates, turn: LiveTurn) -> range:
    """Return the iterations of a turn that is due, counted since the model was distributed."""
    made = updates.readiness.made
    end = updates.counts[0] if turn.last is None else updates.counts[0] - made + turn.last + 1
    return range(end - turn.iterations, end)

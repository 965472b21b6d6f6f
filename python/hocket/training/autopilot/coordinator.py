"""Work of rank 0 for all ranks: it asks the pilot at each meeting, and the planner for it, and records changes."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from hocket.artefacts.change import Change
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.trace import append_change
from hocket.job.store.store import Store
from hocket.job.trace_writes import TraceWrites
from hocket.planning.for_job import updates_per_step
from hocket.training.autopilot.knowledge import Knowledge, described, differs
from hocket.training.autopilot.meeting import Order, Report, What
from hocket.training.autopilot.noise import own_error
from hocket.training.autopilot.pace import Pace
from hocket.training.autopilot.pilot import Action, Pilot, Seen
from hocket.training.autopilot.plans import key_of
from hocket.training.autopilot.searching import Searching
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.autopilot.traffic import Traffic
from hocket.training.autopilot.trial import Candidate

log = logging.getLogger("hocket.autopilot")

FIRST_S = 0.1
"""Seconds between meetings before a step was measured."""
BUSY_S, QUIET_S = (0.05, 1.0), (1.0, 10.0)
"""Seconds between meetings: one step while something is under way, else QUIET_STEPS; each within these limits."""
QUIET_STEPS = 3

LISTEN = 3
"""Meetings for which connections are listened to before the network is looked at: listening costs nothing."""


class Coordinator:
    """Coordinator of one job. `profiled_ranks`: how many ranks bring their part of a profile."""

    def __init__(
        self,
        watch: Stopwatch,
        knowledge: Knowledge,
        *,
        profiled_ranks: int,
        prefix: str,
        trace: str | None,
    ) -> None:
        """Make the coordinator. `prefix`: that of keys in the store. `trace`: the directory of the trace, if one is written."""
        self._watch, self._knowledge = watch, knowledge
        self._profiled_ranks, self._prefix = profiled_ranks, prefix
        self._trace = None if trace is None else Path(trace)
        self._writes = TraceWrites("changes of the plan")
        self._traffic = Traffic()
        self._pace = Pace()
        self._epoch: int | None = None
        self._listens = 0
        self._pilot: Pilot | None = None
        self._action: Action | None = None
        self._offered: Plan | None = None
        self._now: Plan | None = None
        self._profiling, self._planned = True, False
        self._search: Searching | None = None

    def order(self, store: Store) -> Order:
        """Return the order that follows from the last meeting, and from a look since."""
        what: What = "wait"
        key, profile = "", False
        if self._pilot is not None and self._action not in (None, Action.PLAN, Action.PROPOSE):
            action, self._action = self._action, None
            key = self._pilot.candidate.key
            what = "look" if action is Action.LOOK else "prepare" if action is Action.PREPARE else "begin"
            if action is Action.LOOK and self._planned:
                # The model may take other times now, too.
                profile = self._profiling = True
                self._knowledge.times.clear()
            if action is Action.PREPARE:
                store.set(f"{self._prefix}/{key}", msgspec.to_builtins(self._offered))
        return Order(
            what=what,
            key=key,
            profile=profile,
            interval_s=self._interval_s(),
            search_s=self._knowledge.search_s,
        )

    def meet(self, everyone: Sequence[Report], now: Plan) -> None:
        """Decide on the next action, after all ranks have reported while `now` was in force on this rank."""
        self._now = now
        if self._search is not None and self._knowledge.search_s is not None:
            self._knowledge.search_s = self._search.left_s
        for rank, each in enumerate(everyone):
            if each.times is not None:
                self._knowledge.times[rank] = each.times
        self._profiling = len(self._knowledge.times) < self._profiled_ranks
        epoch = everyone[0].epoch
        settled = all(each.settled and each.epoch == epoch for each in everyone)
        self._watch_traffic(everyone, epoch if settled else None)
        if self._pilot is None:
            if not settled:
                return
            knows = self._knowledge.cluster is not None
            self._pilot = Pilot(
                _candidate(now),
                knows_network=knows,
                say=self._say,
                searches=self._knowledge.search_s is not None,
                watches=self._knowledge.drives or self._knowledge.given is not None,
            )
        for each in everyone:
            if each.refused is not None and each.refused[0] == self._pilot.candidate.key:
                self._refused(self._pilot, each.refused[1])
        if any(each.retreated for each in everyone):
            self._knowledge.retreat()
        taken_s = [time_s for of, time_s in self._watch.take() if of == epoch]
        # While a plan is due, steps are only taken down.
        asked = self._pilot.observe(
            Seen(
                step=self._watch.step,
                epoch=epoch,
                began=self._watch.epoch_began,
                settled=settled,
                step_s=self._pace.of(epoch, self._watch.schedule, taken_s),
                profiled=not self._profiling,
                prepared=all(each.prepared == self._pilot.candidate.key for each in everyone),
                moved=self._traffic.moved,
            )
        )
        self._action = asked or self._action
        if asked is Action.LOOK and self._traffic.knows and self._knowledge.cluster is not None:
            self._traffic.listen()
            self._action, self._listens = None, LISTEN
        elif self._listens and settled:
            self._listen(self._pilot)
        if self._action is Action.PLAN:
            self._plan(self._pilot, now)
        elif self._action is Action.PROPOSE:
            self._propose(self._pilot, now)

    def looked(self, found: Cluster) -> None:
        """Take the measured network: the planner is asked when the profile is there, too."""
        assert self._pilot is not None  # noqa: S101  # it asked for this
        before, self._knowledge.cluster = self._knowledge.cluster, found
        changed = before is None or differs(before, found)
        self._action = self._pilot.looked(changed=changed, found=described(found))

    def _listen(self, pilot: Pilot) -> None:
        """Listen for one meeting more; then take the network as connections show it, or look at it."""
        self._listens -= 1
        if self._listens:
            return
        shown = self._knowledge.shown_by(self._traffic.ratios)
        if shown is None:
            self._action = Action.LOOK
            return
        self._knowledge.cluster = shown
        self._traffic.begin()
        found = f"{described(shown)}, as connections show"
        self._action = pilot.looked(changed=True, found=found, sure=False)

    def _watch_traffic(self, everyone: Sequence[Report], epoch: int | None) -> None:
        """Learn from sent bytes. `epoch`: in force on all ranks; None: one is on its way, and the bytes belong to two plans."""
        order = everyone[0].order
        if epoch is None or epoch != self._epoch or (order is not None and order.what == "look"):
            self._traffic.begin()
        else:
            self._traffic.learn([each.sent for each in everyone])
        self._epoch = epoch

    def _plan(self, pilot: Pilot, now: Plan) -> None:
        if self._profiling:
            return
        self._planned = True
        self._offered, now_s = self._knowledge.proposal(
            now, pilot.times.latest_s, self._traffic.least_bit_per_s
        )
        self._action = pilot.planned(_candidate(self._offered), now_s)

    def _propose(self, pilot: Pilot, now: Plan) -> None:
        """Ask for the next candidate of the search, which is another plan than the one in force."""
        if self._search is None:
            self._search = self._knowledge.searching(now)
        offered = self._search.next()
        if offered is not None and key_of(offered) == pilot.current.key:
            took_s, error_s = pilot.times.median_s, own_error(pilot.times.window_s)
            self._search.tried(took_s, took_s, error_s, kept=True)
            # The next meeting asks for another.
            return
        if offered is None:
            self._action = self._knowledge.search_s = None
            pilot.searched(self._search.ended)
            return
        self._offered = offered
        self._action = pilot.proposed(_candidate(offered))

    def _refused(self, pilot: Pilot, why: str) -> None:
        if pilot.refused(why) and self._search is not None:
            self._search.refused()

    def _interval_s(self) -> float:
        step_s = None if self._pilot is None else self._pilot.times.known_s
        if self._pilot is None or step_s is None:
            return FIRST_S
        steps, (least, most) = (1, BUSY_S) if self._pilot.busy else (QUIET_STEPS, QUIET_S)
        return min(max(steps * step_s, least), most)

    def _say(self, change: Change) -> None:
        """Write a line in the log for each change of the plan, and one in the trace for everything."""
        if change.what in ("adopted", "left"):
            back = "back to " if change.what == "left" else ""
            log.warning(
                "epoch %d at step %d: %s%s, %s", change.epoch, change.step, back, change.label, change.why
            )
        else:
            level = logging.WARNING if change.what in ("searching", "searched") else logging.INFO
            log.log(level, "step %d: %s: %s, %s", change.step, change.what, change.label, change.why)
        if change.what in ("kept", "left"):
            self._take_down(change)
        if change.what in ("kept", "planned", "searched") and self._now is not None:
            self._knowledge.keep(self._now)
        if self._trace is not None:
            self._writes(functools.partial(append_change, self._trace, change))

    def _take_down(self, ended: Change) -> None:
        """Record the result of a trial, which ended as `kept` or `left`, with its times."""
        before_s, after_s = ended.before_s, ended.after_s
        if self._offered is None or before_s is None or after_s is None:
            return
        if self._offered.schedule.turns or len(self._offered.workers) < self._offered.world:
            # Other jobs learn from trials about links, in steps in which each gradient travels once, among ranks that train.
            return
        if self._search is None:
            trial = self._knowledge.trial(self._offered, after_s, ended.error_s or 0.0)
        else:
            trial = self._search.tried(before_s, after_s, ended.error_s or 0.0, kept=ended.what == "kept")
        self._knowledge.take_down(trial, self._trace)


def _candidate(plan: Plan) -> Candidate:
    updates = fmean(updates_per_step(plan)) if plan.buckets else 1.0
    return Candidate(key_of(plan), plan.label, plan.evidence.predicted_step_s, updates)

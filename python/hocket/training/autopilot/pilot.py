"""Decisions when a job in training measures, plans, changes its plan and goes back: a state machine without clock and without I/O.

Rank 0's pilot decides; `beside` brings it the reports of all ranks, and does what it asks for. A plan in force is *watched*: its
steps are compared with those at the time when it proved itself. When they differ, the job looks at its network and asks the
planner. A plan that promises less time is prepared on all ranks, begins as an epoch, and is then *on trial*: it stays only if its
steps are shorter than those of the plan before. If steps are as long, more updates are better. A plan that does not prove itself is
refused for a while, twice as long each time; and the planner is asked less and less often while it finds nothing.

In a *search*, there is always a next candidate: each is on trial for a few steps, in turn with the plan before, so that a drift of
the machine is in both; the better plan stays, and the next is proposed. The proposer learns from the times of trials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from statistics import median

from hocket.artefacts.change import Change, What
from hocket.planning.reason import seconds
from hocket.training.autopilot.caution import Caution
from hocket.training.autopilot.noise import error
from hocket.training.autopilot.times import StepTimes
from hocket.training.autopilot.trial import Candidate, Trial, Verdict


class Backoff:
    """Rests between questions to the planner, and refusals of plans, in numbers of steps."""

    def __init__(self, caution: Caution) -> None:
        """Begin without a rest. `caution`: how long the first one takes."""
        self._caution = caution
        self._since = self._steps = 0
        self._next_steps = caution.rest
        self._refused: dict[str, tuple[int, int]] = {}

    def rest(self, step: int) -> None:
        """Begin a rest: the planner found nothing."""
        self._since, self._steps = step, self._next_steps
        self._next_steps = min(2 * self._next_steps, self._caution.rest_max)

    def resting(self, step: int, ratio: float) -> bool:
        """Return whether it is too soon for another question, where steps take `ratio` of what they took; after a change that
        nobody would overlook, an eighth as long."""
        waited = step - self._since
        if 1 / self._caution.doubt <= ratio <= self._caution.doubt:
            return waited < self._steps
        return waited < max(self._steps // 8, self._caution.rest)

    def found(self) -> None:
        """End the rest: a plan has proved itself."""
        self._next_steps, self._steps = self._caution.rest, 0

    def refuse(self, key: str, step: int) -> None:
        """Refuse a plan for a while."""
        _, times = self._refused.get(key, (0, 0))
        self._refused[key] = step + (self._caution.rest << (times + 4)), times + 1

    def refuses(self, key: str, step: int) -> bool:
        """Return whether the plan is refused."""
        until, _ = self._refused.get(key, (0, 0))
        return step < until

    def forget(self) -> None:
        """Forget refusals, and how long the next rest is to be: they were made on another network."""
        self._refused.clear()
        self._next_steps = self._caution.rest


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Reports of all ranks at a meeting, combined.

    Args:
        step: number of steps that have ended.
        epoch: epoch in force on all ranks.
        began: the step before which the epoch began.
        settled: no epoch is on its way on any rank.
        step_s: times of steps that ended since the last meeting, without those of other epochs and the first of this one.
        profiled: the model's profile is there.
        prepared: all ranks can begin the plan that is being prepared.
        moved: the job's own traffic shows other rates than after the last look.
    """

    step: int
    epoch: int = 0
    began: int = 0
    settled: bool = True
    step_s: tuple[float, ...] = ()
    profiled: bool = True
    prepared: bool = False
    moved: bool = False


class Action(Enum):
    """Requests of the pilot."""

    LOOK = auto()
    """Let all ranks measure the network; then `looked`."""
    PLAN = auto()
    """Let rank 0 ask the planner; then `planned`."""
    PROPOSE = auto()
    """Let rank 0 ask the search for its next candidate; then `proposed`, or `searched`."""
    PREPARE = auto()
    """Let all ranks make the programs of `candidate`."""
    BEGIN = auto()
    """Let all ranks learn an epoch of `candidate`."""


class _Phase(Enum):
    WATCHING = auto()
    LOOKING = auto()
    PLANNING = auto()
    PREPARING = auto()
    BEGINNING = auto()
    TRIAL = auto()
    RETURNING = auto()


class Pilot:
    """Pilot of one job. `current` is the plan in force, with `times` of its steps, `candidate` the plan of the last action."""

    _trial: Trial

    def __init__(
        self,
        current: Candidate,
        *,
        knows_network: bool,
        say: Callable[[Change], None],
        caution: Caution | None = None,
        searches: bool = False,
        watches: bool = True,
    ) -> None:
        """Begin to watch. `knows_network`: the plan in force was made for a network that was measured. `say`: records each change.
        `searches`: a search follows the planner's first answer. Unless it `watches`, the plan with which that ends stays."""
        self.current = current
        self.candidate = current
        self._say = say
        self._caution = caution or Caution()
        self._looked = knows_network
        self._fresh = self._changed = False
        self._phase = _Phase.WATCHING
        self._asked = False
        self._seen = Seen(step=0)
        self.times = StepTimes(self._caution.window)
        self._reference: list[float] = []
        self._left_epoch = 0
        self._backoff = Backoff(self._caution)
        self._searches, self._watches = searches, watches
        self._first_s: float | None = None
        """Step time when the search began; None: no search has begun."""

    @property
    def busy(self) -> bool:
        """True if the next meeting should come soon."""
        return not self._asked or self._searches or self._phase is not _Phase.WATCHING

    def observe(self, seen: Seen) -> Action | None:
        """Take the reports of one meeting; return the action to be done now, if any."""
        self._seen = seen
        if not seen.settled:
            return None
        self.times.add(seen.step_s)
        match self._phase:
            case _Phase.WATCHING:
                return self._idle()
            case _Phase.PREPARING if seen.prepared and self._in_turn:
                self._trial = Trial(self.current, self.times.window_s, self._caution)
                self._left_epoch = seen.epoch
                self._phase = _Phase.BEGINNING
                return Action.BEGIN
            case _Phase.BEGINNING if seen.epoch > self._left_epoch:
                return self._begun()
            case _Phase.TRIAL:
                return self._try()
            case _Phase.RETURNING if seen.epoch > self._left_epoch:
                self._phase = _Phase.WATCHING
                self.times.begin(seen.step_s)
            case _:
                pass
        return None

    def looked(self, *, changed: bool, found: str, sure: bool = True) -> Action:
        """Take the measured network. `changed`: it is another than was known; `found`: its description in a few words; not `sure`:
        only the job's own traffic says so, and steps that take longer than predicted then cast doubt on it."""
        self._looked, self._fresh = True, sure
        self._changed = changed
        if changed:
            self._backoff.forget()
        self._note("looked", self.current, found)
        self._phase = _Phase.PLANNING
        return Action.PLAN

    def planned(self, best: Candidate, current_s: float) -> Action | None:
        """Take the planner's best plan, and its prediction for the plan in force."""
        self._asked = True
        self.current = replace(self.current, predicted_s=current_s)
        measured_s = self.times.median_s
        if not self._fresh and measured_s > self._caution.doubt * current_s:
            why = f"a step takes {seconds(measured_s)}, predicted were {seconds(current_s)}"
            return self._doubt(why, measured_s)
        self._fresh = False
        objection = self._objection(best, current_s)
        if objection is not None:
            self._stay(objection)
            return None
        return self.proposed(best)

    def _objection(self, best: Candidate, current_s: float) -> str | None:
        """Return why the planner's best plan is not tried; None: it is."""
        gain, promised_s = self._caution.gain, best.predicted_s
        if promised_s is None:
            return f"nothing was predicted of {best.label}"
        if best.key == self.current.key:
            return "it is still the best one"
        # More updates in steps that are as long.
        merges_less = promised_s <= current_s * (1 + gain) and best.updates > self.current.updates * (
            1 + gain
        )
        if promised_s > current_s * (1 - gain) and not merges_less:
            return f"{best.label} would take {seconds(promised_s)}, which saves too little"
        if self._backoff.refuses(best.key, self._seen.step):
            return f"{best.label} did not prove itself before"
        return None

    def proposed(self, plan: Candidate) -> Action:
        """Prepare a candidate: the planner's, or the search's next one."""
        self.candidate = plan
        self._phase = _Phase.PREPARING
        return Action.PREPARE

    def searched(self, why: str) -> None:
        """End the search, which has no other candidate: the best plan stays, and is watched from now on."""
        self._searches, self._first_s, first_s = False, None, self._first_s
        self._note("searched", self.current, why, first_s, self.times.known_s)
        self._reference = []
        self.times.begin()
        self._backoff.rest(self._seen.step)
        self._phase = _Phase.WATCHING

    def refused(self, why: str) -> bool:
        """Note that a rank could not prepare the candidate, not to be tried again soon; return whether this is news."""
        if self._phase is not _Phase.PREPARING:
            return False
        refused = f"{self.candidate.label} was refused: {why}"
        if self._searching:
            self._note("planned", self.current, refused, self.times.known_s)
            self._phase = _Phase.WATCHING
        else:
            self._backoff.refuse(self.candidate.key, self._seen.step)
            self._stay(refused)
        return True

    def _idle(self) -> Action | None:
        if not self._asked:
            return self._begin()
        return self._propose() if self._searches else self._watch()

    def _begin(self) -> Action | None:
        if len(self.times.all_s) < self._caution.first or not self._seen.profiled:
            return None
        self._phase = _Phase.PLANNING if self._looked else _Phase.LOOKING
        return Action.PLAN if self._looked else Action.LOOK

    @property
    def _searching(self) -> bool:
        return self._first_s is not None

    @property
    def _in_turn(self) -> bool:
        """True if the plan in force had its turn before a candidate's."""
        return not self._searching or len(self.times.all_s) >= self._caution.search_trial

    def _propose(self) -> Action | None:
        if not self.times.all_s:
            return None
        if not self._searching:
            if len(self.times.all_s) < self._caution.search_trial:
                return None
            self._first_s = self.times.median_s
            self._note("searching", self.current, "a search begins", self._first_s)
        self._phase = _Phase.PLANNING
        return Action.PROPOSE

    def _watch(self) -> Action | None:
        if not self._watches:
            return None
        now, step = self.times.window_s, self._seen.step
        if self._seen.moved and self._reference and now and not self._backoff.resting(step, 1.0):
            return self._doubt(
                "connections carry other rates than they did", median(self._reference), self.times.known_s
            )
        if len(now) < self._caution.window:
            return None
        if not self._reference:
            self._reference = now
            self.times.begin()
            return None
        before_s, now_s = median(self._reference), median(now)
        if self._backoff.resting(step, now_s / before_s) or not self._drifted(before_s, now_s, now):
            return None
        return self._doubt(f"a step takes {seconds(now_s)}, it took {seconds(before_s)}", before_s, now_s)

    def _drifted(self, before_s: float, now_s: float, now: list[float]) -> bool:
        ratio = now_s / before_s
        if 1 / self._caution.drift <= ratio <= self._caution.drift:
            return False
        return abs(now_s - before_s) > self._caution.errors * error(self._reference, now)

    def _doubt(self, why: str, before_s: float, after_s: float | None = None) -> Action:
        self._note("drifted", self.current, why, before_s, after_s)
        self._phase = _Phase.LOOKING
        return Action.LOOK

    def _begun(self) -> Action | None:
        self.current, before_s = self.candidate, self._trial.before_s
        why = f"predicted {_known(self.current)}, was {seconds(before_s)}"
        self._note("adopted", self.current, why, before_s)
        self._phase = _Phase.TRIAL
        self.times.begin(self._seen.step_s)
        return self._try()

    def _try(self) -> Action | None:
        steps_s, trial = list(self.times.all_s), self._trial
        verdict = (
            trial.verdict_in_search(steps_s) if self._searching else trial.verdict(self.current, steps_s)
        )
        if verdict is None:
            return None
        return self._keep(verdict) if verdict.stays else self._leave(verdict)

    def _keep(self, verdict: Verdict) -> Action | None:
        _, now_s, error_s = verdict
        before_s = self._trial.before_s
        why = f"{seconds(before_s)} a step before"
        self._note("kept", self.current, why, before_s, now_s, error_s=error_s)
        self._phase = _Phase.WATCHING
        if self._searching:
            return None
        self._reference = []
        self._backoff.found()
        predicted_s = self.current.predicted_s
        if predicted_s is not None and now_s > self._caution.doubt * predicted_s:
            why = f"a step takes {seconds(now_s)}, predicted were {seconds(predicted_s)}"
            return self._doubt(why, now_s)
        return None

    def _leave(self, verdict: Verdict) -> Action:
        _, now_s, error_s = verdict
        before, before_s = self._trial.before, self._trial.before_s
        if not self._searching:
            self._backoff.refuse(self.current.key, self._seen.step)
            self._backoff.rest(self._seen.step)
        why = (
            f"{self.current.label} takes {seconds(now_s)} a step, predicted {_known(self.current)}; "
            f"{before.label} took {seconds(before_s)}"
        )
        self._note("left", before, why, before_s, now_s, error_s=error_s)
        self._left_epoch = self._seen.epoch
        self.candidate = self.current = before
        self._reference = self._trial.window_s
        self._phase = _Phase.RETURNING
        return Action.BEGIN

    def _stay(self, why: str) -> None:
        self._note("planned", self.current, why, self.times.known_s)
        # Later steps are compared with those when the planner answered: the network may have changed since. If the last look found
        # another one, some of these are from the one before, so the next steps become the reference.
        now = self.times.window_s
        self._reference = now if len(now) == self._caution.window and not self._changed else []
        self._changed = False
        self.times.begin()
        self._backoff.rest(self._seen.step)
        self._phase = _Phase.WATCHING

    def _note(
        self,
        what: What,
        plan: Candidate,
        why: str,
        before_s: float | None = None,
        after_s: float | None = None,
        *,
        error_s: float | None = None,
    ) -> None:
        seen = self._seen
        self._say(
            Change(
                what=what,
                step=seen.began if what == "adopted" else seen.step,
                # The epoch of the plan before begins as soon as all ranks know it.
                epoch=seen.epoch + (what == "left"),
                label=plan.label,
                why=why,
                predicted_s=plan.predicted_s,
                before_s=before_s,
                after_s=after_s,
                error_s=error_s,
            )
        )


def _known(plan: Candidate) -> str:
    return "nothing" if plan.predicted_s is None else seconds(plan.predicted_s)

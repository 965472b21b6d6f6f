"""Decisions when a job in training measures, plans, changes its plan and goes back: a state machine without clock and without I/O.

Rank 0's pilot decides; `beside` brings it the reports of all ranks, and does what it asks for. A plan in force is *watched*: its
steps are compared with those at the time when it proved itself. When they differ, the job looks at its network and asks the
planner. A plan that promises less time is prepared on all ranks, begins as an epoch, and is then *on trial*: it stays only if its
steps are shorter than those of the plan before. If steps are as long, more updates are better. A plan that does not prove itself is
refused for a while, twice as long each time; and the planner is asked less and less often while it finds nothing.

In a *search*, there is always a next candidate: each is on trial for a few steps, in turn with the plan before, so that a drift of
the machine is in both; the better plan stays, and the next is proposed. The proposer learns from the times of trials.

All times are medians, because a step now and then takes much longer for reasons of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from statistics import median

from hocket.artefacts.change import Change, What
from hocket.planning.reason import seconds
from hocket.training.autopilot.noise import error, own_error

LATEST = 3
"""Number of latest steps whose median is the present step time."""

CLEARLY = 3
"""Number of steps that show that a plan is clearly slower."""


@dataclass(frozen=True, kw_only=True)
class Caution:
    """Numbers of steps, and ratios of step times."""

    first: int = 5
    """Steps before the first plan is asked for: the profile is made of them."""
    window: int = 8
    """Steps of which the median counts while a plan is watched."""
    trial: int = 5
    """Steps after which a trial may end, and `trial_max` after which it must."""
    trial_max: int = 9
    gain: float = 0.03
    """Share of the step that a plan must promise to save, to be tried."""
    clear: float = 0.05
    """Relative difference beyond which steps are told apart after `trial` of them."""
    drift: float = 1.1
    """Ratio of step times, either way, beyond which a plan counts as drifted, unless noise explains it."""
    errors: float = 5.0
    """Standard errors that the difference must exceed, so that noise does not explain it."""
    doubt: float = 1.3
    """Ratio of step time to prediction beyond which the measurements of the network are in doubt."""
    hopeless: float = 1.5
    """Ratio to the steps before beyond which a trial ends, after three steps that all take this much longer."""
    rest: int = 8
    """Steps without a question to the planner after it found nothing; twice as many each time, up to `rest_max`."""
    rest_max: int = 4096
    search_warm_up: int = 2
    """Steps of a search's trial that do not count, and steps at least, and at most, that do."""
    search_trial: int = 4
    search_trial_max: int = 12
    search_doubt: float = 2.0
    """Standard errors by which steps must be longer than those before to end a search's trial."""
    search_gain: float = 0.01
    """Share of the step that a plan must save in a search's trial, to stay."""


@dataclass(frozen=True)
class Candidate:
    """Plan, as far as this machine knows it. `key` tells it from others; None: nobody predicted its step. `updates`: per step, less
    than one if gradients are merged."""

    key: str
    label: str
    predicted_s: float | None = None
    updates: float = 1.0


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
    """Pilot of one job. `current` is the plan in force, `candidate` the plan of the last action."""

    def __init__(
        self,
        current: Candidate,
        *,
        knows_network: bool,
        say: Callable[[Change], None],
        caution: Caution | None = None,
        searches: bool = False,
    ) -> None:
        """Begin to watch. `knows_network`: the plan in force was made for a network that was measured. `say`: records each change.
        `searches`: a search follows the planner's first answer."""
        self.current = current
        self.candidate = current
        self._before = current
        self._say = say
        self._caution = caution or Caution()
        self._looked = knows_network
        self._fresh = self._changed = False
        self._phase = _Phase.WATCHING
        self._asked = False
        self._seen = Seen(step=0)
        self._steps_s: deque[float] = deque(maxlen=2 * self._caution.window)
        self._last_s: float | None = None
        self._reference: list[float] = []
        self._before_s = 0.0
        self._before_window: list[float] = []
        self._left_epoch = 0
        self._rest = self._caution.rest
        self._rests_since = self._rests = 0
        self._refused: dict[str, tuple[int, int]] = {}
        self._searches = searches
        self._first_s: float | None = None
        """Step time when the search began; None: no search has begun."""

    @property
    def busy(self) -> bool:
        """True if the next meeting should come soon."""
        return not self._asked or self._searches or self._phase is not _Phase.WATCHING

    @property
    def step_s(self) -> float | None:
        """Step time of the plan in force, as far as it was seen; else time of the last step."""
        return self._median() if self._steps_s else self._last_s

    @property
    def turn(self) -> tuple[float, float]:
        """Step time of the plan in force, and its standard error."""
        window = self._window()
        return median(window), own_error(window)

    @property
    def latest_s(self) -> float:
        """Median time of the last steps that were seen."""
        return median(list(self._steps_s)[-LATEST:])

    def observe(self, seen: Seen) -> Action | None:
        """Take the reports of one meeting; return the action to be done now, if any."""
        self._seen = seen
        if not seen.settled:
            return None
        self._steps_s.extend(seen.step_s)
        if seen.step_s:
            self._last_s = seen.step_s[-1]
        match self._phase:
            case _Phase.WATCHING:
                return self._idle()
            case _Phase.PREPARING if seen.prepared and self._in_turn:
                self._before_window = self._window()
                self._before_s = median(self._before_window)
                self._left_epoch = seen.epoch
                self._phase = _Phase.BEGINNING
                return Action.BEGIN
            case _Phase.BEGINNING if seen.epoch > self._left_epoch:
                return self._begun()
            case _Phase.TRIAL:
                return self._try()
            case _Phase.RETURNING if seen.epoch > self._left_epoch:
                self._phase = _Phase.WATCHING
                self._steps_s.clear()
                self._steps_s.extend(seen.step_s)
            case _:
                pass
        return None

    def looked(self, *, changed: bool, found: str, sure: bool = True) -> Action:
        """Take the measured network. `changed`: it is another than was known; `found`: its description in a few words; not `sure`:
        only the job's own traffic says so, and steps that take longer than predicted then cast doubt on it."""
        self._looked, self._fresh = True, sure
        self._changed = changed
        if changed:
            # Earlier refusals were made on another network.
            self._refused.clear()
            self._rest = self._caution.rest
        self._note("looked", self.current, found)
        self._phase = _Phase.PLANNING
        return Action.PLAN

    def planned(self, best: Candidate, current_s: float) -> Action | None:
        """Take the planner's best plan, and its prediction for the plan in force."""
        self._asked = True
        self.current = replace(self.current, predicted_s=current_s)
        measured_s = self._median()
        if not self._fresh and measured_s > self._caution.doubt * current_s:
            why = f"a step takes {seconds(measured_s)}, predicted were {seconds(current_s)}"
            return self._doubt(why, measured_s)
        self._fresh = False
        promised_s = best.predicted_s
        if promised_s is None:
            self._stay(f"nothing was predicted of {best.label}")
            return None
        if best.key == self.current.key:
            self._stay("it is still the best one")
            return None
        if promised_s > current_s * (1 - self._caution.gain) and not self._merges_less(best, current_s):
            self._stay(f"{best.label} would take {seconds(promised_s)}, which saves too little")
            return None
        until, _ = self._refused.get(best.key, (0, 0))
        if self._seen.step < until:
            self._stay(f"{best.label} did not prove itself before")
            return None
        self.candidate = best
        self._phase = _Phase.PREPARING
        return Action.PREPARE

    def _merges_less(self, best: Candidate, current_s: float) -> bool:
        """Return whether the plan makes more updates in steps that are as long."""
        gain = self._caution.gain
        as_long = best.predicted_s is not None and best.predicted_s <= current_s * (1 + gain)
        return as_long and best.updates > self.current.updates * (1 + gain)

    def proposed(self, plan: Candidate) -> Action:
        """Prepare the search's next candidate."""
        self.candidate = plan
        self._phase = _Phase.PREPARING
        return Action.PREPARE

    def searched(self, why: str) -> None:
        """End the search, which has no other candidate: the best plan stays, and is watched from now on."""
        self._searches, self._first_s, first_s = False, None, self._first_s
        self._note("searched", self.current, why, first_s, self.step_s)
        self._reference = []
        self._steps_s.clear()
        self._later()
        self._phase = _Phase.WATCHING

    def refused(self, why: str) -> bool:
        """Note that a rank could not prepare the candidate, not to be tried again soon; return whether this is news."""
        if self._phase is not _Phase.PREPARING:
            return False
        refused = f"{self.candidate.label} was refused: {why}"
        if self._searching:
            self._note("planned", self.current, refused, self.step_s)
            self._phase = _Phase.WATCHING
        else:
            self._refuse(self.candidate)
            self._stay(refused)
        return True

    def _idle(self) -> Action | None:
        if not self._asked:
            return self._begin()
        return self._propose() if self._searches else self._watch()

    def _begin(self) -> Action | None:
        if len(self._steps_s) < self._caution.first or not self._seen.profiled:
            return None
        self._phase = _Phase.PLANNING if self._looked else _Phase.LOOKING
        return Action.PLAN if self._looked else Action.LOOK

    @property
    def _searching(self) -> bool:
        return self._first_s is not None

    @property
    def _in_turn(self) -> bool:
        """True if the plan in force had its turn before a candidate's."""
        return not self._searching or len(self._steps_s) >= self._caution.search_trial

    def _propose(self) -> Action | None:
        if not self._steps_s:
            return None
        if not self._searching:
            if len(self._steps_s) < self._caution.search_trial:
                return None
            self._first_s = self._median()
            self._note("searching", self.current, "a search begins", self._first_s)
        self._phase = _Phase.PLANNING
        return Action.PROPOSE

    def _watch(self) -> Action | None:
        now = self._window()
        if self._seen.moved and self._reference and now and not self._resting(1.0):
            return self._doubt(
                "connections carry other rates than they did", median(self._reference), self.step_s
            )
        if len(now) < self._caution.window:
            return None
        if not self._reference:
            self._reference = now
            self._steps_s.clear()
            return None
        before_s, now_s = median(self._reference), median(now)
        if self._resting(now_s / before_s):
            return None
        if not self._drifted(before_s, now_s, now):
            return None
        return self._doubt(f"a step takes {seconds(now_s)}, it took {seconds(before_s)}", before_s, now_s)

    def _resting(self, ratio: float) -> bool:
        """Return whether it is too soon for another question; after a change that nobody would overlook, an eighth as long."""
        waited = self._seen.step - self._rests_since
        if 1 / self._caution.doubt <= ratio <= self._caution.doubt:
            return waited < self._rests
        return waited < max(self._rests // 8, self._caution.rest)

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
        self._before, self.current = self.current, self.candidate
        was = seconds(self._before_s)
        self._note("adopted", self.current, f"predicted {_known(self.current)}, was {was}", self._before_s)
        self._phase = _Phase.TRIAL
        self._steps_s.clear()
        self._steps_s.extend(self._seen.step_s)
        return self._try()

    def _try(self) -> Action | None:
        caution, before_s = self._caution, self._before_s
        count = len(self._steps_s)
        hopeless = count >= CLEARLY and min(self._steps_s) > caution.hopeless * before_s
        if self._searching:
            return self._try_in_search(hopeless=hopeless)
        if not hopeless and count < caution.trial:
            return None
        now_s = self._median()
        if not hopeless and count < caution.trial_max and abs(now_s / before_s - 1) < caution.clear:
            return None
        # Steps that take as long as before do not speak against a plan that makes more updates.
        longest_s = before_s * (1 + caution.clear * (self.current.updates > self._before.updates))
        return self._keep(now_s) if now_s < longest_s else self._leave(now_s)

    def _try_in_search(self, *, hopeless: bool) -> Action | None:
        caution, before_s = self._caution, self._before_s
        # The first step of an epoch was not reported.
        steps_s = list(self._steps_s)[0 if hopeless else caution.search_warm_up - 1 :]
        if len(steps_s) < CLEARLY:
            return None
        now_s = median(steps_s)
        saved_s, noise_s = before_s - now_s, error(self._before_window, steps_s)
        clear = abs(saved_s) > max(caution.clear * before_s, caution.errors * noise_s)
        # To leave a plan too early that is hardly better costs less than to go on with one that is not better.
        doubtful = -saved_s > caution.search_doubt * noise_s
        count = len(steps_s)
        ends = (
            hopeless
            or (clear and saved_s < 0)
            or (count >= caution.search_trial and (clear or doubtful))
            or count >= caution.search_trial_max
        )
        if not ends:
            return None
        if now_s > before_s * (1 - caution.search_gain):
            return self._leave(now_s, own_error(steps_s))
        was = f"{seconds(before_s)} a step before"
        self._note("kept", self.current, was, before_s, now_s, error_s=own_error(steps_s))
        self._phase = _Phase.WATCHING
        return None

    def _keep(self, now_s: float) -> Action | None:
        self._note("kept", self.current, f"{seconds(self._before_s)} a step before", self._before_s, now_s)
        self._reference = []
        self._rest, self._rests = self._caution.rest, 0
        predicted_s = self.current.predicted_s
        if predicted_s is not None and now_s > self._caution.doubt * predicted_s:
            why = f"a step takes {seconds(now_s)}, predicted were {seconds(predicted_s)}"
            return self._doubt(why, now_s)
        self._phase = _Phase.WATCHING
        return None

    def _leave(self, now_s: float, error_s: float | None = None) -> Action:
        if not self._searching:
            self._refuse(self.current)
            self._later()
        why = (
            f"{self.current.label} takes {seconds(now_s)} a step, predicted {_known(self.current)}; "
            f"{self._before.label} took {seconds(self._before_s)}"
        )
        self._note("left", self._before, why, self._before_s, now_s, error_s=error_s)
        self._left_epoch = self._seen.epoch
        self.candidate = self.current = self._before
        self._reference = self._before_window
        self._phase = _Phase.RETURNING
        return Action.BEGIN

    def _refuse(self, plan: Candidate) -> None:
        _, times = self._refused.get(plan.key, (0, 0))
        self._refused[plan.key] = self._seen.step + (self._caution.rest << (times + 4)), times + 1

    def _stay(self, why: str) -> None:
        self._note("planned", self.current, why, self.step_s)
        # Later steps are compared with those when the planner answered: the network may have changed since. If the last look found
        # another one, some of these are from the one before, so the next steps become the reference.
        now = self._window()
        self._reference = now if len(now) == self._caution.window and not self._changed else []
        self._changed = False
        self._steps_s.clear()
        self._later()
        self._phase = _Phase.WATCHING

    def _later(self) -> None:
        self._rests_since, self._rests = self._seen.step, self._rest
        self._rest = min(2 * self._rest, self._caution.rest_max)

    def _median(self) -> float:
        return median(self._window())

    def _window(self) -> list[float]:
        return list(self._steps_s)[-self._caution.window :]

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

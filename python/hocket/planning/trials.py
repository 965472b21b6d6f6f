"""Choice of the next plan to try in a training job, or to stop: AutoDist's search (Zhang et al. 2020, algorithm 1) without I/O.

    trials = Trials(question, incumbent, seed=1)
    while (plan := trials.next()) is not None:
        trials.observe(plan, measured_s, spread_s)
    trials.best, trials.ended

In a round, the planner searches again with the likeliest slowness of links, and with sampled ones (Thompson 1933), and the sampler
makes random plans. Plans that predictions rule out are left out; of the others, a few are chosen by expected improvement (Jones et
al. 1998) and diversity. Deterministic: the same calls give the same plans.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from hocket.artefacts.belief import Belief
from hocket.artefacts.plan import Evidence, Plan
from hocket.errors import Error, UsageError
from hocket.planning import choice
from hocket.planning.asked import Asked
from hocket.planning.built import built
from hocket.planning.learned import MODEL_SD, Learned, Trial, learned
from hocket.planning.question import SEED, Question
from hocket.planning.sampler import all_reduces, sampled
from hocket.planning.traced import has_policies

log = logging.getLogger("hocket.builder")

TRIALS_MAX = 200
"""AutoDist's budget."""
BATCH = 3
"""Number of trials in a round."""
DRAWS = 32
"""Number of samples of links and weights for expectations."""
SEARCHES = 3
"""Searches in a round: one with the likeliest links, the others with sampled links."""
EVALUATIONS = 2_000
"""Budget of each search."""
SAMPLES = 48
"""Number of random plans in a round."""
KEPT = 64
"""Number of plans kept for the next round, by expectation."""
WORTH = 0.002
"""Expected improvement, as a fraction of the best step, below which a trial is not worth its time."""
ROUNDS_IN_VAIN = 2
"""Rounds without a plan worth a trial after which the search ends: another round may have better random plans."""


@dataclass(frozen=True)
class Tried:
    """A trial and its expected step time; None for a plan that was not proposed here."""

    plan: Plan
    expected_s: float | None
    step_s: float
    spread_s: float


class Trials:
    """A search by trials. `best` is the plan with the shortest step so far; `ended` gives the reason for the end, None before."""

    def __init__(
        self,
        question: Question,
        incumbent: Plan,
        seed: int = SEED,
        prior: Belief | None = None,
        *,
        trials_max: int = TRIALS_MAX,
    ) -> None:
        """Prepare a search; nothing is computed yet.

        Args:
            question: the allowed choices, on the assumed cluster. Owners are always allowed: trials find out which hosts are slow.
            incumbent: the plan that trains now; it is measured first.
            seed: seed of random plans and draws.
            prior: belief about the cluster from other trials.
            trials_max: number of different plans after which the search ends, the incumbent not counted.
        """
        self.question = replace(question, admitted=question.admitted | {"owned"})
        self.ended: str | None = None
        self._seed = seed
        self._prior = prior
        self._trials_max = trials_max
        self._tried: list[Tried] = []
        self._queue: deque[Plan] = deque([incumbent])
        self._expected_s: dict[bytes, float] = {}
        self._pool: dict[bytes, Plan] = {}
        self._incumbent = incumbent
        self._learned: Learned | None = None
        self._rounds = 0
        self._in_vain = 0
        self._dropped: list[Asked] = []
        self._begun = False

    def next(self) -> Plan | None:
        """The plan to measure next, its prediction corrected by all trials so far; None when the search has ended. Once a round,
        this takes about a second."""
        if not self._begun:
            # Who asks for a builder wants its plans tried, whatever is expected of them.
            self._begun = True
            self._queue.extend(self._by_builders(self.question))
        while self.ended is None:
            if self._queue:
                plan = self._queue.popleft()
                if not self._is_tried(plan):
                    return plan
            elif len(self._trials()) > self._trials_max:
                self.ended = f"all {self._trials_max} trials were made"
            else:
                self._round()
        return None

    def observe(self, plan: Plan, measured_s: float, spread_s: float = 0.0) -> None:
        """Record a plan's measured step, and its standard error. A plan may be measured again, and need not come from `next`.

        Raises UsageError for invalid times.
        """
        if not (math.isfinite(measured_s) and measured_s > 0 and math.isfinite(spread_s) and spread_s >= 0):
            raise UsageError(f"a trial took {measured_s} s, give or take {spread_s} s: that is no time")
        expected_s = self._expected_s.get(_key(plan))
        self._tried.append(Tried(plan, expected_s, measured_s, spread_s))
        self._learned = None

    @property
    def tried(self) -> tuple[Tried, ...]:
        """All observations, in their order."""
        return tuple(self._tried)

    @property
    def best(self) -> Plan:
        """The plan with the shortest step, by its own measurements and all trials; before any trial, the incumbent."""
        return self._best()[0]

    @property
    def belief(self) -> Belief:
        """Belief about the cluster from the trials, for the next job's `prior`."""
        return self._known().belief

    def _round(self) -> None:
        """Fill the queue, or end the search."""
        if len(self.question.graph.hosts) < 2:
            self.ended = "one rank sends nothing"
            return
        known = self._known()
        draws = known.draws(DRAWS, self._seed + 7919 * self._rounds)
        for plan in self._proposals(known, draws):
            self._pool.setdefault(_key(plan), plan)
        # Some were kept in the last round, and tried since: they would be expected to be better for ever.
        tried_keys = {_key(each.plan) for each in self._tried}
        self._pool = {key: plan for key, plan in self._pool.items() if key not in tried_keys}
        self._rounds += 1
        if not self._pool:
            self.ended = "there is no other plan"
            return
        plans = list(self._pool.values())
        steps_s = known.steps_s(plans, draws)
        best_s = self._best()[1]
        improvements = np.maximum(0.0, best_s - steps_s).mean(axis=0)
        expected_s = steps_s.mean(axis=0)
        limit_s = choice.reliable_above_s(
            [(each.expected_s, each.step_s) for each in self._tried if each.expected_s is not None]
        )
        scored = [
            (float(improvement), _expecting(plan, float(step_s)))
            for improvement, step_s, plan in zip(improvements, expected_s, plans, strict=True)
            if step_s <= limit_s and improvement >= WORTH * best_s
        ]
        self._pool = {_key(plans[at]): plans[at] for at in np.argsort(expected_s)[:KEPT]}
        if not scored:
            self._in_vain += 1
            if self._in_vain >= ROUNDS_IN_VAIN:
                self.ended = f"no other plan is expected to save {WORTH:.1%} of the step"
            return
        self._in_vain = 0
        tried = [each.plan for each in self._tried]
        left = self._trials_max + 1 - len(self._trials())
        for plan in choice.chosen(scored, tried, min(BATCH, left)):
            self._expected_s[_key(plan)] = plan.predicted_step_s
            self._queue.append(plan)

    def _proposals(self, known: Learned, draws: Any) -> Iterator[Plan]:
        for at in range(SEARCHES):
            drawn = known.as_drawn(draws[at])
            own = self._by_builders(drawn)
            solved = drawn.solved(EVALUATIONS, given=own)
            yield from own
            yield solved.plan()
            yield from (plan for _, plan in solved.built())
            if at == 0:
                uniform = solved.uniform()
                yield from uniform
                seed = self._seed + 104_729 * (self._rounds + 1)
                templates = all_reduces([*uniform, *own])
                if templates:
                    yield from islice(sampled(self.question, templates, seed), SAMPLES)

    def _by_builders(self, question: Question) -> list[Plan]:
        """Plans of users' builders on a network. One that makes none, or one with policies, which only a plan file can have, is
        left out from then on, with a warning: training goes on."""
        found = []
        for asked in question.builders:
            if asked in self._dropped:
                continue
            try:
                plans = [plan for _, plan in built(question, [asked])]
                policed = next((each for each in plans if has_policies(each)), None)
                if policed is not None:
                    raise UsageError(
                        f"builder {asked.title}: a search in training tries no plans with policies\n"
                        "hint: `hocket plan --builder` makes a plan file"
                    )
            except Error as error:
                log.warning("the search goes on without a builder: %s", error)
                self._dropped.append(asked)
            else:
                found += plans
        return found

    def _known(self) -> Learned:
        if self._learned is None:
            self._learned = learned(self.question, self._trials(), self._prior)
        return self._learned

    def _trials(self) -> list[Trial]:
        """One trial per plan: the mean of its measurements, weighted by precision."""
        by_plan: dict[bytes, list[Tried]] = {}
        for each in self._tried:
            by_plan.setdefault(_key(each.plan), []).append(each)
        return [_together(each) for each in by_plan.values()]

    def _best(self) -> tuple[Plan, float]:
        """The best plan, and its step."""
        trials = self._trials()
        if not trials:
            return self._incumbent, math.inf
        known = self._known()
        steps_s = np.log(known.steps_s([each.plan for each in trials], known.draws(DRAWS, self._seed)))
        measured = np.log([each.step_s for each in trials])
        noise = np.array([each.spread_s / each.step_s for each in trials]) ** 2
        unsure = steps_s.var(axis=0) + MODEL_SD**2
        blended = (measured * unsure + steps_s.mean(axis=0) * noise) / (unsure + noise)
        at = int(np.argmin(blended))
        return trials[at].plan, float(np.exp(blended[at]))

    def _is_tried(self, plan: Plan) -> bool:
        return any(_key(each.plan) == _key(plan) for each in self._tried)


def _together(tried: list[Tried]) -> Trial:
    """Combine measurements of one plan; those without a known error have equal weights."""
    least_s = 1e-3 * min(each.step_s for each in tried)
    weights = np.array([max(each.spread_s, least_s) ** -2 for each in tried])
    step_s = float(np.average([each.step_s for each in tried], weights=weights))
    return Trial(tried[0].plan, step_s, float(weights.sum() ** -0.5))


def _expecting(plan: Plan, step_s: float) -> Plan:
    """Return the plan with this prediction."""
    evidence = Evidence(predicted_step_s=step_s)
    return msgspec.structs.replace(plan, evidence=evidence)


def _key(plan: Plan) -> bytes:
    """Return a key that is equal for plans that train alike."""
    return msgspec.msgpack.encode(plan.buckets)

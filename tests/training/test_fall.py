"""Trials of a schedule against training in step: verdicts where losses fall slower a second by it, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.training.guard.fall import Fall, Slope, reported, slope_of

RANKS = 4


class Ranks:
    """Ranks whose loss falls by `by_schedule` or `in_step` an iteration, with noise; an iteration in step takes `in_step_s`."""

    def __init__(self, by_schedule, in_step, *, noise=0.05, in_step_s=1.0, seed=1, logs=True):
        self.passed_s, self.loss, self.in_step_iterations = 0.0, 100.0, 0
        self.falls = [Fall(lambda: self.passed_s) for _ in range(RANKS)]
        self._by, self._in, self._noise, self._in_step_s = by_schedule, in_step, noise, in_step_s
        self._random, self._logs, self._in_force = np.random.default_rng(seed), logs, True
        self.iterate(10)
        self.in_step_iterations, self._in_force = 0, False
        for each in self.falls:
            each.begin(1)

    def iterate(self, count):
        """Return the iteration of a verdict, or None."""
        for at in range(1, count + 1):
            self.passed_s += self._in_step_s if self._in_force else 1.0
            self.in_step_iterations += self._in_force
            reports = dict(enumerate(each.iterated() for each in self.falls))
            for each in self.falls if self._logs else ():
                each.logged(self.loss + self._random.normal(0, self._noise))
            self.loss -= self._in if self._in_force else self._by
            if all(each is None for each in reports.values()):
                continue
            moves, verdict = {each.judge(reports) for each in self.falls}.pop()
            if verdict is not None:
                return at
            if moves:
                self._in_force = self.falls[0].in_step
                for each in self.falls:
                    each.entered()
        return None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("by_schedule", [0.0, 0.005, -0.01])
def test_slower_learning_is_seen_within_some_rounds(seed, by_schedule):
    """Broken: a training that is slower than in step, but does not diverge, would go on so."""
    found = Ranks(by_schedule, 0.05, seed=seed).iterate(120)
    assert found is not None
    assert Ranks(by_schedule, 0.05, seed=seed, noise=0.01).iterate(40) is not None


@pytest.mark.parametrize(("by_schedule", "in_step", "in_step_s"), [(0.0, 0.0, 1.0), (0.01, 0.01, 1.0), (0.006, 0.01, 2.0)])
def test_training_that_is_as_fast_a_second_goes_on(by_schedule, in_step, in_step_s):
    """Broken: jobs would wait for one another for nothing. 20 runs of 1,000 iterations, at most one verdict."""
    verdicts = [
        Ranks(by_schedule, in_step, in_step_s=in_step_s, seed=seed).iterate(1000) is not None for seed in range(20)
    ]
    assert sum(verdicts) <= 1


def test_what_falls_without_doubt_is_not_tried():
    """Broken: a training that goes well would be interrupted by iterations in step; or trials would come too often."""
    clear, doubtful = Ranks(0.05, 0.05), Ranks(0.0, 0.0)
    assert clear.iterate(500) is None
    assert doubtful.iterate(1000) is None
    assert clear.in_step_iterations <= 16
    assert 16 <= doubtful.in_step_iterations <= 160


def test_without_losses_there_is_no_trial():
    """Broken: a script that logs nothing would pay for trials that tell nothing."""
    silent = Ranks(0.0, 0.05, logs=False)
    assert silent.iterate(500) is None
    assert silent.in_step_iterations == 0


def test_a_trial_goes_on_from_what_was_saved():
    """Broken: a resumed job would judge otherwise than one that goes on, or its ranks unlike."""
    ranks = Ranks(0.0, 0.05)
    assert ranks.iterate(15) is None
    other = Fall(lambda: ranks.passed_s)
    other.restore(ranks.falls[1].saved(), 1)
    assert other.saved() == ranks.falls[1].saved()
    ranks.falls[1] = other
    assert ranks.iterate(120) is not None


def test_the_slowest_rank_says_how_long_an_iteration_takes():
    """Broken: seconds would be those of a rank that waits for nobody."""
    quick, slow = (reported([5.0, 4.0, 3.0, 2.0, 1.0], [each] * 5) for each in (1.0, 2.0))
    assert slope_of([quick, slow]) == Slope(0.5, 0.0)
    assert slope_of([quick, reported([1.0], [1.0])]) is None

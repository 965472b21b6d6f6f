"""The sentinel: alarms where training diverges, and only there."""

import math

import numpy as np
import pytest

from hocket.errors import UsageError
from hocket.training.guard.sentinel import SETTLING, SPREAD_GROWING, Sentinel, Watch


def losses(random, count, *, begin=2.3, floor=0.3, fall=0.99, noise=0.1):
    return [
        (floor + (begin - floor) * fall**step) * math.exp(random.normal(0, noise)) for step in range(count)
    ]


def first_alarm(sentinel, values):
    for at, value in enumerate(values):
        if sentinel.see(value):
            return at
    return None


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
def test_training_that_goes_well_sets_off_no_alarm(noise):
    """Benign runs would be taken back to synchronous training: 20 runs of 1,000 updates, at most one alarm."""
    alarms = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        values = losses(random, 1_030, noise=noise)
        alarms += first_alarm(Sentinel("loss", values[:30]), values[30:]) is not None
    assert alarms <= 1


def test_a_loss_that_is_nearly_nothing_may_be_noisy():
    """Broken: a model that has learned its data would be taken for one that diverges: between batches without a mistake and those
    with one, a loss doubles or halves, which it did not in the synchronous window. 20 runs, at most one alarm."""
    alarms = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        noise = [0.05 + 0.8 * min(step / 200, 1) for step in range(400)]
        values = [
            2.3 * 0.98 ** min(step, 250) * math.exp(random.normal(0, each)) for step, each in enumerate(noise)
        ]
        alarms += first_alarm(Sentinel("loss", values[:10]), values[10:]) is not None
    assert alarms <= 1


def test_outliers_and_changes_of_the_rate_set_off_no_alarm():
    """One odd batch, norms that grow slowly, or a drop of the learning rate would end delayed training."""
    random = np.random.default_rng(1)
    values = losses(random, 30)
    sentinel = Sentinel("loss", values)
    assert sentinel.see(1e6) is None
    assert first_alarm(sentinel, [value * 0.1 for value in losses(random, 200)]) is None
    norms = [math.exp(random.normal(0, 0.2)) * 2 ** (step / 1_000) for step in range(1_030)]
    assert first_alarm(Sentinel("norm", norms[:30]), norms[30:]) is None


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("growth", [1.1, 1.3, 2.0])
def test_divergence_is_noticed_within_30_updates(seed, growth):
    """A diverging run would go on until nothing can be saved."""
    random = np.random.default_rng(seed)
    values = losses(random, 60)
    sentinel = Sentinel("loss", values[:30])
    assert first_alarm(sentinel, values[30:]) is None
    diverging = [values[-1] * growth**step * math.exp(random.normal(0, 0.1)) for step in range(1, 31)]
    assert first_alarm(sentinel, diverging) is not None


@pytest.mark.parametrize("seed", range(5))
def test_where_own_gradients_go_first_norms_may_grow_as_in_time(seed):
    """Broken: a job would go back to waiting because norms grow in its first iterations, or go on when they grow without end."""
    random = np.random.default_rng(seed)
    norms = [0.35 * (1 + step / 10) * math.exp(random.normal(0, 0.2)) for step in range(50)]
    strict, watch = Sentinel("norm", norms[:10]), Watch("norm")
    for value in norms[:10]:
        watch.see(value)
    watch.assume(SPREAD_GROWING)
    for value in norms[10:]:
        watch.see(value)
    assert first_alarm(strict, norms[10:]) is not None
    assert watch.alarm is None
    for step in range(1, 31):
        watch.see(norms[-1] * 1.5**step)
    assert watch.alarm is not None


def delayed_heavy_ball(step, momentum, delay, random, count):
    """Losses of a quadratic in two directions, with noise in its gradients."""
    curvatures = np.array([1.0, 0.1])
    values, velocity = [np.array([1.0, 3.0])] * (delay + 1), np.zeros(2)
    for _ in range(count):
        yield float(0.5 * (curvatures * values[-1] ** 2).sum()) + 0.05
        velocity = momentum * velocity + curvatures * values[-1 - delay] + random.normal(0, 0.02, 2)
        values = [*values[-delay - 1 :], values[-1] - step * velocity]


@pytest.mark.parametrize("step", [0.2, 0.5, 1.0, 3.0])
def test_a_rate_between_the_delayed_and_the_synchronous_limit_is_noticed(step):
    """Row R6: synchronous training converges, delayed training diverges, and nobody says so within 30 updates."""
    random = np.random.default_rng(3)
    synchronous = list(delayed_heavy_ball(step, 0.9, 0, random, 400))
    assert synchronous[-1] < synchronous[0]
    sentinel = Sentinel("loss", synchronous[30:60])
    assert first_alarm(sentinel, synchronous[60:]) is None
    begin = synchronous[-1]
    late = list(delayed_heavy_ball(step, 0.9, 1, random, 31))
    scaled = [begin * value / late[0] for value in late[1:]]
    assert first_alarm(sentinel, scaled) is not None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_alarms_at_once(value):
    """Comparisons with nan are false: the sum would stay what it was."""
    alarm = Sentinel("loss", [1.0] * 10).see(value)
    assert alarm is not None
    assert "after 1 updates" in str(alarm)


def test_a_window_that_says_nothing_is_refused():
    """The band would be that of two values, or of zeros."""
    with pytest.raises(UsageError, match="at least 10"):
        Sentinel("loss", [1.0, 2.0])
    with pytest.raises(UsageError, match="positive"):
        Sentinel("loss", [0.0] * 20)


def test_after_a_retreat_only_what_grows_further_alarms():
    """One alarm would end every safer schedule too, since norms are still large; or none would be watched any more."""
    watch = Watch("norm")
    for _ in range(10):
        watch.see(1.0)
    for step in range(20):
        watch.see(1.5**step)
        if watch.alarm:
            break
    assert watch.alarm is not None
    reached = watch.alarm.value
    watch.again()
    assert watch.alarm is None
    for step in range(SETTLING):
        # What moves too far goes on for a while.
        watch.see(reached * 1.5 ** min(step, 5))
    for step in range(30):
        watch.see(reached * 1.5**5 * 0.9**step)
    assert watch.alarm is None
    for step in range(20):
        watch.see(reached * 1.5**step)
    assert watch.alarm is not None


def test_a_loss_below_zero_says_nothing():
    """Log-likelihoods of densities may be of any sign: a band of their logarithms is none."""
    watch = Watch("loss")
    for value in [1.0] * 10 + [0.5, -0.1, 0.0, -3.0] * 10 + [1.0]:
        watch.see(value)
    assert watch.alarm is None

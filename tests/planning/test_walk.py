"""Expectations of the walk against Monte Carlo, integration and limits; noise against gradients with known noise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import UsageError
from hocket.planning.walk import (
    Walk,
    after,
    expected,
    fitted_floor,
    noise_of,
    paper_ratio,
    progress,
)

WALK = Walk(loss=2.3, floor=0.4, rate=0.05, drift=0.6, noise=8.0, batch=64)


@pytest.mark.parametrize("loss", [0.4, 0.45, 0.7, 2.3])
@pytest.mark.parametrize("move", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("spread", [0.01, 0.2, 1.0])
def test_one_step_is_that_of_the_walk(loss, move, spread):
    """The guard would accept or reject by a wrong expectation: the paper prints one."""
    floor, count = 0.4, 400_000
    drawn = np.random.default_rng(1).normal(move, spread, count)
    raw = loss - drawn
    rebounded = np.where(raw >= floor, raw, 2 * floor - raw)
    found = expected(loss, floor, move, spread)
    assert abs(found - rebounded.mean()) < 5 * rebounded.std() / math.sqrt(count) + 1e-9
    grid = np.linspace(move - 12 * spread, move + 12 * spread, 200_001)
    density = np.exp(-(((grid - move) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
    integral = np.trapezoid((np.abs(loss - floor - grid) + floor) * density, grid)
    assert found == pytest.approx(integral, rel=1e-6)


def test_limits_of_the_walk():
    """Without noise, with endless batches and at the floor the walk is arithmetic."""
    assert expected(3.0, 1.0, 0.5, 0.0) == 2.5
    assert expected(3.0, 1.0, 2.5, 0.0) == 1.5
    endless = WALK._replace(batch=1e18)
    assert after(endless, [1, 1, 1], "one") == pytest.approx(2.3 - 3 * 0.05 * 0.6)
    assert after(WALK._replace(noise=0.0), [2, 1], "linear") == pytest.approx(2.3 - 3 * 0.05 * 0.6)
    assert expected(0.4, 0.4, 0.0, 0.3) == pytest.approx(0.4 + 0.3 * math.sqrt(2 / math.pi))


def test_the_papers_ratio():
    """Its `compatible` mode would reject what the paper accepts, or accept everything."""
    assert paper_ratio(WALK, [1, 1, 1], "linear") == 1
    # The same distance with less noise: accepted.
    assert abs(paper_ratio(WALK, [2, 1], "linear") - 1) < 0.01
    # A single step where there would have been eight: the loss stays higher.
    steep = WALK._replace(noise=0.0)
    assert paper_ratio(steep, [8], "one") == pytest.approx((2.3 - 8 * 0.03) / (2.3 - 0.03))


def test_progress_sees_what_the_ratio_hides():
    """Late in training the loss hardly moves: the ratio is 1 for any schedule, and learning at half the speed would be accepted."""
    late = Walk(loss=2.0, floor=0.0, rate=1e-3, drift=0.5, noise=0.0, batch=64)
    assert abs(paper_ratio(late, [2], "one") - 1) < 0.01
    assert progress(late, [2], "one", delay=0) == pytest.approx(0.5, abs=0.02)
    assert progress(late, [2], "linear", delay=0) == pytest.approx(1.0, abs=0.02)
    assert progress(late, [1], "one", delay=0) == 1
    # Delay costs little where steps are small, and training diverges where they are large.
    assert progress(late, [1], "one", delay=1) > 0.95
    large = late._replace(rate=6.0)
    assert progress(large, [1], "one", delay=2) < 0


def test_progress_is_unknown_where_nothing_is_gained():
    """A schedule would be judged by a quotient of noise."""
    assert progress(WALK._replace(loss=0.41, noise=1e4), [2], "linear", delay=0) is None


@settings(max_examples=200)
@given(
    floor=st.floats(-2, 5),
    height=st.floats(0.1, 10),
    factor=st.floats(0.8, 0.97),
    count=st.integers(30, 200),
)
def test_a_fitted_floor_is_where_the_curve_ends(floor, height, factor, count):
    """Progress would be measured against a floor that the loss never comes to."""
    losses = [floor + height * factor**step for step in range(count)]
    found = fitted_floor(losses)
    assert found is not None
    assert found == pytest.approx(floor, abs=1e-6 * height + 1e-9)


def test_no_floor_where_the_curve_does_not_fall():
    """A rising loss would get a floor above it."""
    assert fitted_floor([1.0, 1.1, 1.2]) is None
    assert fitted_floor([3.0, 2.0, 1.0]) is None
    assert fitted_floor([]) is None


def test_noise_of_gradients_with_known_noise():
    """Both would be those of the mean gradient, whose noise is part of its norm."""
    random = np.random.default_rng(2)
    world, local, size = 8, 16, 50
    true = random.normal(0, 1, size) * 0.3
    deviations = np.linspace(0.5, 2.0, size)
    found = []
    for _ in range(2_000):
        # Means of `local` samples each.
        gradients = true + random.normal(0, 1, (world, size)) * deviations / math.sqrt(local)
        total = gradients.sum(0)
        noise = noise_of(
            norm2_by_rank=(gradients**2).sum(1),
            norm2_of_sum=float(total @ total),
            dots=gradients @ true,
            batch=world * local,
        )
        found.append((noise.drift, noise.noise**2, noise.trace))
    drift, variance, trace = np.mean(found, axis=0)
    assert trace == pytest.approx(sum(deviations**2), rel=0.03)
    assert drift == pytest.approx(true @ true, rel=0.03)
    assert variance == pytest.approx(true @ (deviations**2 * true), rel=0.05)
    with pytest.raises(UsageError, match="at least two"):
        noise_of(norm2_by_rank=[1.0], norm2_of_sum=1.0, dots=[1.0], batch=8)

"""What ranks see of how a model learns: estimates from their local gradients, against the truth they were drawn from."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from hocket.artefacts.learning import Learning
from hocket.training.guard.gauge import LOSSES_MAX, Gauge, Norms, Report, learning_of

OPTIMIZER = Learning(optimizer="SGD", rate=0.1, momentum=0.9)


def reports(truth: np.ndarray, spread: float, world: int, iterations: int) -> list[Report]:
    random = np.random.default_rng(4)
    norms: list[list[Norms]] = [[] for _ in range(world)]
    for _ in range(iterations):
        local = truth + random.normal(0, spread, (world, len(truth)))
        mean = local.mean(axis=0)
        for rank, own in enumerate(local):
            norms[rank].append(
                Norms(own=float(own @ own), product=float(own @ mean), mean=float(mean @ mean))
            )
    return [Report(norms=tuple(each), optimizer=OPTIMIZER) for each in norms]


@pytest.mark.parametrize("given", [4, 16])
def test_drift_and_noise_are_those_of_the_gradients(given: int) -> None:
    """Broken: the guard would judge by numbers of another loss. With fewer ranks than there are, these stand for all."""
    truth = np.linspace(-1, 1, 200)
    all_of = reports(truth, 0.3, 16, 200)
    found = learning_of(all_of[:given], 16)
    assert found is not None
    assert found.drift == pytest.approx(truth @ truth, rel=0.05)
    # The product with the mean of few ranks also has the noise of that mean's own part.
    assert found.noise == pytest.approx(0.3 * math.sqrt(truth @ truth), rel=0.15)
    assert found.ranks == 16
    assert (found.rate, found.momentum) == (0.1, 0.9)


def test_losses_are_means_and_the_largest_curvature_counts() -> None:
    """Broken: one rank's easy batch would decide for all."""
    seen = [
        Report(losses=(9.0, 3.0, 1.0), curvature=2.0, optimizer=OPTIMIZER),
        Report(losses=(5.0, 3.0), curvature=7.0, optimizer=OPTIMIZER),
        Report(optimizer=OPTIMIZER),
    ]
    found = learning_of(seen, 3)
    assert found is not None
    assert found.losses == (4.0, 2.0)
    assert found.curvature == 7.0
    assert found.drift is None
    assert learning_of([Report(losses=(1.0,))], 1) is None


def test_one_rank_has_no_noise() -> None:
    """Broken: `hocket profile` of one rank would divide by zero."""
    (alone,) = reports(np.ones(3), 0.1, 1, 2)
    found = learning_of([alone], 1)
    assert found is not None
    assert found.noise is None


def test_what_scripts_say_is_bounded_and_finite() -> None:
    """Broken: a long training would keep all of its losses, or a loss of nan would spoil the guard's mean."""
    gauge = Gauge()
    for at in range(2 * LOSSES_MAX):
        gauge.observe(loss=float(at))
    gauge.observe(loss=math.nan)
    gauge.observe(curvature=3.0)
    said = gauge.report(None)
    assert said.losses == tuple(float(at) for at in range(LOSSES_MAX, 2 * LOSSES_MAX))
    assert said.curvature == 3.0
    assert msgspec.convert(msgspec.to_builtins(said), Report) == said

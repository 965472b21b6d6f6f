"""The model that all scenarios train, its data, and what of it a rank uses: the same for ranks and for the oracle."""

from __future__ import annotations

import random

import numpy as np

from hocket.artefacts.gradient import Gradient
from tests.sessions.scenarios import Scenario
from tests.training import network

WIDTHS = (5, 7, 3)
SAMPLES = 2


def initial(seed: int) -> dict[str, np.ndarray]:
    """Initial parameters, in the order of registration."""
    return network.values(seed, widths=WIDTHS)


def gradients() -> dict[str, Gradient]:
    """Gradients by name."""
    return {name: Gradient(name, value.shape, "f64") for name, value in initial(0).items()}


def batch(rank: int, iteration: int, backward: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets. Some inputs are zero, and so are some rows of the first layer's gradient."""
    draw = np.random.default_rng([rank, iteration, backward])
    used = draw.random(WIDTHS[0]) < 0.6
    return draw.normal(size=(SAMPLES, WIDTHS[0])) * used, draw.normal(size=(SAMPLES, WIDTHS[-1]))


def spare(scenario: Scenario, rank: int, iteration: int, backward: int) -> bool:
    """Return whether a rank's forward uses the spare layer."""
    if "uneven" not in scenario.events:
        return False
    return random.Random(f"{scenario.seed} {rank} {iteration} {backward}").random() < 0.3  # noqa: S311

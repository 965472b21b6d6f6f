"""The model of `python -m benches frameworks`: square layers, whose gradient the chosen framework computes."""

from __future__ import annotations

from typing import Any

import numpy as np

WIDTH, LAYERS, RATE = 768, 8, 0.01

SAMPLES = 32
"""Samples of a rank's batch."""


def weights() -> list[np.ndarray[Any, Any]]:
    """Make weights, the same on all ranks."""
    random = np.random.default_rng(0)
    made = (random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(LAYERS))
    return [each.astype(np.float32) for each in made]


def batch_of(random: np.random.Generator, samples: int) -> np.ndarray[Any, Any]:
    """Draw a rank's own batch."""
    return random.normal(size=(samples, WIDTH)).astype(np.float32)

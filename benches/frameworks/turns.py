"""Contenders, and what one of them takes for its steps in a turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from benches.frameworks.model import batch_of

STEPS, WARM_UP = 4, 4
"""Of each turn: how many count, and how many before them do not, in which functions are compiled and an epoch begins."""

Step = Callable[[np.ndarray[Any, Any]], None]
"""Takes a batch, and returns when the step has ended."""


class Contender(Protocol):
    """One of them."""

    def begin(self) -> Step:
        """Its turn begins. The first steps of a turn may take longer."""


def turn(contender: Contender, random: np.random.Generator, samples: int) -> list[float]:
    """Seconds of its steps."""
    step = contender.begin()
    seen_s = []
    for _ in range(WARM_UP + STEPS):
        batch = batch_of(random, samples)
        began_s = time.perf_counter()
        step(batch)
        seen_s.append(time.perf_counter() - began_s)
    return seen_s[WARM_UP:]

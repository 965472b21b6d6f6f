"""Contenders, and what one of them takes for its steps in a turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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


class Taken(NamedTuple):
    """Seconds of the steps of a turn, and of this rank's processors in each, on all threads together."""

    steps_s: list[float]
    processor_s: list[float]


def turn(contender: Contender, random: np.random.Generator, samples: int) -> Taken:
    """What its steps took."""
    step = contender.begin()
    taken = Taken([], [])
    for number in range(WARM_UP + STEPS):
        batch = batch_of(random, samples)
        began_s, worked_s = time.perf_counter(), time.process_time()
        step(batch)
        if number >= WARM_UP:
            taken.steps_s.append(time.perf_counter() - began_s)
            taken.processor_s.append(time.process_time() - worked_s)
    return taken

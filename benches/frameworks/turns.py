"""Contenders, and times of a contender's steps in a turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from benches.frameworks.model import batch_of

STEPS, WARM_UP = 4, 4
"""Steps of a turn that count, and steps before these that do not, in which functions are compiled and an epoch begins."""

Step = Callable[[np.ndarray[Any, Any]], None]
"""Function that takes a batch, and returns when the step has ended."""


class Contender(Protocol):
    def begin(self) -> Step:
        """Begin a turn, whose first steps may take longer."""


class Taken(NamedTuple):
    """Seconds of the steps of a turn, and processor seconds of this rank in each, on all threads together."""

    steps_s: list[float]
    processor_s: list[float]


def turn(contender: Contender, random: np.random.Generator, samples: int) -> Taken:
    """Run a contender's turn, and time its steps."""
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

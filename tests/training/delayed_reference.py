"""Delayed training with variable batches, in one process of plain NumPy: what sessions with schedules have to compute.

An update is the optimizer's step of one large batch (the mean over the turn's iterations and workers) at a rate for its size,
with gradients of the parameters as they were in each iteration. Nothing due: no step, so that momentum, decay and moments rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

State = dict[str, Any]
Step = Callable[[np.ndarray, np.ndarray, State, float], np.ndarray]

RATE = 0.001


def sgd(momentum: float = 0.0, decay: float = 0.0, *, nesterov: bool = False) -> Step:
    """Heavy ball or Nesterov; decay is part of the gradient."""

    def step(values: np.ndarray, mean: np.ndarray, state: State, rate: float) -> np.ndarray:
        slope = mean + decay * values
        state["velocity"] = momentum * state.get("velocity", 0.0) + slope
        moved = slope + momentum * state["velocity"] if nesterov else state["velocity"]
        return values - rate * moved

    return step


def adam(decay: float, *, decoupled: bool) -> Step:
    """Adam (Kingma and Ba 2015), or AdamW, whose decay is no part of the gradient (Loshchilov and Hutter 2019)."""

    def step(values: np.ndarray, mean: np.ndarray, state: State, rate: float) -> np.ndarray:
        slope = mean if decoupled else mean + decay * values
        kept = values * (1 - rate * decay) if decoupled else values
        count = state["count"] = state.get("count", 0) + 1
        first = state["first"] = 0.9 * state.get("first", 0.0) + 0.1 * slope
        second = state["second"] = 0.999 * state.get("second", 0.0) + 0.001 * slope**2
        return kept - rate * (first / (1 - 0.9**count)) / (np.sqrt(second / (1 - 0.999**count)) + 1e-8)

    return step


OPTIMIZERS: dict[str, Step] = {
    "sgd": sgd(),
    "momentum": sgd(0.8),
    "nesterov": sgd(0.8, nesterov=True),
    "decay": sgd(0.5, 0.1),
    "adam": adam(0.1, decoupled=False),
    "adamw": adam(0.1, decoupled=True),
}


class Turns(NamedTuple):
    """Of these elements: turns of `lengths` iterations, repeated, each applied `delay` iterations after its last."""

    elements: slice
    lengths: tuple[int, ...]
    delay: int

    def due(self, iterations: int) -> dict[int, tuple[int, int]]:
        """By the iteration at whose end it is applied: from which iteration to which a turn is."""
        counted = itertools.accumulate(itertools.cycle(self.lengths))
        ends = list(itertools.takewhile(lambda end: end <= iterations, counted))
        return {end - 1 + self.delay: (begin, end) for begin, end in itertools.pairwise([0, *ends])}


def merges(most: int) -> list[tuple[int, ...]]:
    """Every sequence of merged iterations of up to so many in all."""
    lengths = range(1, most + 1)
    all_of = (each for size in lengths for each in itertools.product(lengths, repeat=size))
    return [each for each in all_of if sum(each) <= most]


def train(
    kind: str,
    values: np.ndarray,
    gradient: Callable[[np.ndarray, int, int], np.ndarray],
    *,
    workers: int,
    turns: Sequence[Turns],
    iterations: int,
    factor: Callable[[int], float],
    rate: Callable[[int], float] = lambda _: RATE,
    clip: float | None = None,
) -> np.ndarray:
    """Values after some iterations.

    `gradient(values, iteration, worker)`; `factor(k)`: what the rate of an update of k iterations is multiplied with; `rate`: by
    iteration; `clip`: the largest norm of all that is applied at once.
    """
    states: list[State] = [{} for _ in turns]
    history = []
    due = [each.due(iterations) for each in turns]
    for iteration in range(iterations):
        history.append(values)
        means = {}
        for at, own in enumerate(turns):
            if iteration in due[at]:
                begin, end = due[at][iteration]
                of = [
                    gradient(history[at], at, worker)[own.elements]
                    for at in range(begin, end)
                    for worker in range(workers)
                ]
                means[at] = np.mean(of, axis=0), end - begin
        norm = np.sqrt(sum(np.sum(mean**2) for mean, _ in means.values()))
        scale = 1.0 if clip is None or not means else min(1.0, clip / (norm + 1e-6))
        values = values.copy()
        for at, (mean, merged) in means.items():
            own = turns[at].elements
            step = OPTIMIZERS[kind]
            values[own] = step(values[own], scale * mean, states[at], rate(iteration) * factor(merged))
    return values

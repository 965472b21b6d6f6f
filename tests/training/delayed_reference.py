"""Delayed training with variable batches, in one process of plain NumPy: what sessions with schedules have to compute.

An update is the optimizer's step of one large batch (the mean over the turn's iterations and workers) at a rate for its size,
with gradients of the parameters as they were in each iteration. Nothing due: no step, so that momentum, decay and moments rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

State = dict[str, Any]
Step = Callable[[np.ndarray, np.ndarray, State, float], np.ndarray]

RATE = 0.02


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


def train(
    kind: str,
    values: np.ndarray,
    gradient: Callable[[np.ndarray, int, int], np.ndarray],
    *,
    workers: int,
    lengths: Sequence[int],
    delay: int,
    iterations: int,
    factor: Callable[[int], float],
) -> np.ndarray:
    """Values after some iterations of turns of `lengths`, repeated, each applied `delay` iterations after its last.

    `gradient(values, iteration, worker)`; `factor(k)`: what the rate of an update of k iterations is multiplied with.
    """
    state: State = {}
    history = []
    ends = list(
        itertools.takewhile(lambda end: end <= iterations, itertools.accumulate(itertools.cycle(lengths)))
    )
    due = {end - 1 + delay: (begin, end) for begin, end in itertools.pairwise([0, *ends])}
    for iteration in range(iterations):
        history.append(values)
        if iteration in due:
            begin, end = due[iteration]
            mean = np.mean(
                [gradient(history[at], at, worker) for at in range(begin, end) for worker in range(workers)],
                axis=0,
            )
            values = OPTIMIZERS[kind](values, mean, state, RATE * factor(end - begin))
    return values

"""The network, data and steps of the conformance suite, the same for all frameworks, and what must come of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from tests.training.adapters import MOMENTUM, RATE
from tests.training.tape import Momentum, Network, Tape

WORLD, STEPS, SAMPLES = 3, 8, 4
BEFORE = range(100, 102)
"""Steps of rank 0 alone, before a job begins."""
WIDTHS = (6, 300, 40, 5)
"""The second layer has 12,000 elements: it is in a bucket of its own with small limits, and moves in several chunks."""


def values(seed: int, dtype: str = "float64", widths: tuple[int, ...] = WIDTHS) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    made = {}
    for at, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        made[f"{at}.weight"] = draw.normal(0, inputs**-0.5, (inputs, outputs)).astype(dtype)
        made[f"{at}.bias"] = draw.normal(0, 0.1, outputs).astype(dtype)
    made["spare.weight"] = draw.normal(0, 0.4, (widths[-1], widths[-1])).astype(dtype)
    made["spare.bias"] = draw.normal(0, 0.1, widths[-1]).astype(dtype)
    return made


def batch(rank: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng([rank, step])
    return draw.normal(size=(SAMPLES, WIDTHS[0])), draw.normal(size=(SAMPLES, WIDTHS[-1]))


class Reference:
    """Data-parallel training in one place: the definition that ranks are compared with."""

    def __init__(self, initial: dict[str, np.ndarray]) -> None:
        self.network = Network(initial)
        self.optimizer = Momentum(self.network.parameters.values(), RATE, MOMENTUM)

    def gradients(self, rank: int, step: int, *, spare: bool = False) -> dict[str, np.ndarray | None]:
        self.optimizer.zero_grad()
        tape = Tape()
        tape.backward(self.network.loss(tape, *batch(rank, step), spare=spare))
        return {name: each.grad for name, each in self.network.parameters.items()}

    def apply(self, by_rank: list[dict[str, np.ndarray | None]]) -> dict[str, np.ndarray | None]:
        """One step with the mean over the ranks; a gradient that no rank made is none, else a missing one counts as zero."""
        mean: dict[str, np.ndarray | None] = {}
        for name, own in self.network.parameters.items():
            made = [each[name] for each in by_rank if each[name] is not None]
            mean[name] = sum(made) / len(by_rank) if made else None
            own.grad = mean[name]
        self.optimizer.step()
        return mean

    def values(self) -> dict[str, np.ndarray]:
        return {name: each.value.copy() for name, each in self.network.parameters.items()}


def trained(
    gradients: Callable[[Reference, int, int], dict[str, np.ndarray | None]],
    steps: range,
    reference: Reference | None = None,
) -> tuple[list[dict[str, np.ndarray | None]], dict[str, np.ndarray]]:
    """Mean gradients by step, and parameters at the end; from rank 0's initial ones, if `reference` has no others."""
    own = reference or Reference(values(seed=0))
    means = [own.apply([gradients(own, rank, step) for rank in range(WORLD)]) for step in steps]
    return means, own.values()

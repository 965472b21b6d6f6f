"""Merged and late gradients, as a session has to compute them: a plain reference, against PyTorch's optimizers one by one."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from tests.training.delayed_reference import OPTIMIZERS, RATE, Turns, merges, train

SIZE, WORKERS, ITERATIONS = 7, 3, 50

TORCH: dict[str, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=RATE),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.8),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.8, nesterov=True),
    "decay": lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.5, weight_decay=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=RATE, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.1),
}


def gradient(values: np.ndarray, iteration: int, worker: int) -> np.ndarray:
    random = np.random.default_rng((iteration, worker))
    return np.linspace(0.2, 1.5, SIZE) * (values - random.normal(0, 1, SIZE))


def with_torch(kind: str, lengths: Sequence[int], delay: int, factor: Callable[[int], float]) -> np.ndarray:
    """The same, written as a loop over iterations: a queue of means, and an optimizer whose `grad` is None where nothing is due."""
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, SIZE, dtype=torch.float64))
    optimizer = TORCH[kind]([parameter])
    rates = [group["lr"] for group in optimizer.param_groups]
    turns = itertools.cycle(lengths)
    length, open_turn, waiting = next(turns), [], []
    for iteration in range(ITERATIONS):
        now = parameter.detach().numpy().copy()
        open_turn += [gradient(now, iteration, worker) for worker in range(WORKERS)]
        if len(open_turn) == length * WORKERS:
            waiting.append((iteration + delay, length, np.mean(open_turn, axis=0)))
            length, open_turn = next(turns), []
        due = [each for each in waiting if each[0] == iteration]
        waiting = [each for each in waiting if each[0] != iteration]
        parameter.grad = torch.from_numpy(due[0][2]) if due else None
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (factor(due[0][1]) if due else 1)
        optimizer.step()
    return parameter.detach().numpy()


@pytest.mark.parametrize("kind", sorted(TORCH))
@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_reference_is_the_optimizers_own_step(kind, delay):
    """Sessions would be tested against another optimizer than the user's: decay and momentum move on due means alone."""
    assert set(OPTIMIZERS) == set(TORCH)
    factor = float if kind in ("sgd", "momentum", "nesterov", "decay") else np.sqrt
    assert len(merges(6)) == 63
    for lengths in merges(4):
        found = train(
            kind,
            np.linspace(-1, 1, SIZE),
            gradient,
            workers=WORKERS,
            turns=[Turns(slice(None), lengths, delay)],
            iterations=ITERATIONS,
            factor=factor,
        )
        expected = with_torch(kind, lengths, delay, factor)
        assert np.abs(found - expected).max() < 1e-12, lengths


def test_a_trivial_schedule_is_plain_training():
    """Merging by one and delaying by none would not be synchronous training."""
    values, velocity = np.linspace(-1, 1, SIZE), 0.0
    for iteration in range(ITERATIONS):
        mean = np.mean([gradient(values, iteration, worker) for worker in range(WORKERS)], axis=0)
        velocity = 0.8 * velocity + mean
        values = values - RATE * velocity
    found = train(
        "momentum",
        np.linspace(-1, 1, SIZE),
        gradient,
        workers=WORKERS,
        turns=[Turns(slice(None), (1,), 0)],
        iterations=ITERATIONS,
        factor=float,
    )
    assert np.abs(found - values).max() < 1e-12

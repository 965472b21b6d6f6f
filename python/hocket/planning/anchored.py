"""Largest stable step where own gradients go first, with heavy-ball descent on a quadratic loss that all ranks share.

Until a mean arrives, a rank descends by its own gradients, so lateness alone costs no stability: with turns of one iteration,
training is that of one process. Turns of k iterations step the anchor k times by one mean, which lowers the limit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

SCANNED = 400
"""Number of steps, up to the limit of synchronous training, of which the first unstable one is looked for."""
HALVINGS = 40

Form = npt.NDArray[np.float64]
"""A value as a linear form of the state at the beginning of a period."""

Bounds = tuple[int, int, int]
"""First and last iteration of a turn, and that at whose end it is due."""


@functools.cache
def stability_limit(period: int, turns: tuple[Bounds, ...], momentum: float) -> float:
    """Return the largest product of learning rate and curvature for which training converges. `turns`: of one period.

    >>> [round(stability_limit(k, ((0, k - 1, k),), 0.9), 2) for k in (1, 2, 4)]
    [3.8, 1.06, 0.72]
    """
    synchronous = 2 * (1 + momentum)
    stable = 0.0
    for step in np.linspace(0, synchronous, SCANNED + 1)[1:]:
        if _radius(period, turns, momentum, step) > 1 + 1e-9:
            unstable = float(step)
            for _ in range(HALVINGS):
                middle = (stable + unstable) / 2
                if _radius(period, turns, momentum, middle) > 1 + 1e-9:
                    unstable = middle
                else:
                    stable = middle
            return stable
        stable = float(step)
    return synchronous


def _radius(period: int, turns: Sequence[Bounds], momentum: float, step: float) -> float:
    """Return the spectral radius of a period: by how much it may multiply a distance to the minimum.

    The state is the anchor and a rank's own values, each with its momentum, and the gradients that the anchor lacks.
    """
    held = 1 + max(due - first for first, _, due in turns)
    anchor, anchor_move, own, own_move, *gradients = np.eye(4 + held)
    made = dict(zip(range(-held, 0), gradients, strict=True))

    def mean(first: int, end: int) -> Form:
        total: Form = np.sum([made[at] for at in range(first, end)], axis=0)
        return total / (end - first)

    def stepped(value: Form, move: Form, gradient: Form, count: int = 1) -> tuple[Form, Form]:
        for _ in range(count):
            move = momentum * move + gradient
            value = value - move
        return value, move

    for iteration in range(period):
        made[iteration] = step * own
        due = [turn for turn in _around(period, turns, held) if turn[2] == iteration]
        if not due:
            own, own_move = stepped(own, own_move, made[iteration])
            continue
        for first, last, _ in due:
            anchor, anchor_move = stepped(anchor, anchor_move, mean(first, last + 1), last + 1 - first)
        own, own_move = anchor, anchor_move
        for first, last, _ in _around(period, turns, held):
            if due[-1][1] < first <= iteration:
                end = min(last, iteration) + 1
                own, own_move = stepped(own, own_move, mean(first, end), end - first)
    rows = [anchor, anchor_move, own, own_move, *(made[at] for at in range(period - held, period))]
    return float(np.abs(np.linalg.eigvals(np.array(rows))).max())


def _around(period: int, turns: Sequence[Bounds], held: int) -> Iterator[Bounds]:
    """Yield the turns that may be open in a period, in order."""
    for at, (first, last, due) in itertools.product(range(-1 - held // period, 2), turns):
        begin = at * period
        yield first + begin, last + begin, due + begin

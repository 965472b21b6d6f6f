"""Random windows for knapsacks, and random models for schedules, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from benches.delays.optimum import Item
from hocket import _native
from hocket.planning.cards import Piece


class Window(NamedTuple):
    """Items, and the end of each link's window, in ticks."""

    items: list[Item]
    until: list[int]


def small_windows(seed: int, count: int) -> Iterator[Window]:
    """Windows of one to three links and up to nine items: short times, so that many packings are nearly optimal.

    Half of them have slower links in a fixed ratio (DeFT's 1.65) and half any times; a quarter has all items ready at once, and a
    quarter profits that are not times.
    """
    rolled = random.Random(seed)  # noqa: S311  # no secret
    for _ in range(count):
        links, items = rolled.randint(1, 3), rolled.randint(1, 9)
        ready_max = 0 if rolled.random() < 0.25 else 150
        related, worth = rolled.random() < 0.5, rolled.random() < 0.25
        made: list[Item] = []
        for _ in range(items):
            fast = rolled.randint(1, 60)
            others = [fast * 33 // 20 if related else rolled.randint(1, 120) for _ in range(links - 1)]
            profit = rolled.randint(1, 60) if worth else fast
            made.append((rolled.randint(0, ready_max), [fast, *others], profit))
        yield Window(made, [rolled.randint(0, 260) for _ in range(links)])


def large_windows(seed: int, count: int, parts: int, links: int) -> Iterator[Window]:
    """A step's window, which holds about half of the parts on one link; parts become ready evenly through backward."""
    rolled = random.Random(seed)  # noqa: S311  # no secret
    longest = _native.STEP_TICKS // (parts // 4)
    for _ in range(count):
        made: list[Item] = []
        for part in range(parts):
            busy = [rolled.randint(1, longest) for _ in range(links)]
            made.append((40_000 * part // parts, busy, busy[0]))
        yield Window(made, [_native.STEP_TICKS] * links)


class Model(NamedTuple):
    """Seconds of forward, backward and transfer by bucket, the input side first; and the ratio of transfer to computation."""

    forward_s: list[float]
    backward_s: list[float]
    transfer_s: list[float]
    coverage: float

    @property
    def step_s(self) -> float:
        return sum(self.forward_s) + sum(self.backward_s)

    @property
    def pieces(self) -> list[Piece]:
        """Demands on one link, the deepest bucket ready first."""
        ends_s = [sum(self.forward_s) + sum(self.backward_s[at:]) for at in range(len(self.forward_s))]
        return [
            (end_s, 0.0, 0.0, busy_s, [busy_s]) for end_s, busy_s in zip(ends_s, self.transfer_s, strict=True)
        ]

    @property
    def needed_s(self) -> list[float]:
        """Times at which forward needs each bucket."""
        return [sum(self.forward_s[:at]) for at in range(len(self.forward_s))]


def models(seed: int, count: int, parts: int, coverages: tuple[float, float]) -> Iterator[Model]:
    """Random models: computation of layers and transfer of parts differ by up to a factor of three."""
    rolled = random.Random(seed)  # noqa: S311  # no secret
    for _ in range(count):
        coverage = rolled.uniform(*coverages)
        forward_s = [0.5 + rolled.random() for _ in range(parts)]
        transfer_s = [0.5 + rolled.random() for _ in range(parts)]
        scale = coverage * 3 * sum(forward_s) / sum(transfer_s)
        yield Model(
            forward_s, [2 * each for each in forward_s], [scale * each for each in transfer_s], coverage
        )

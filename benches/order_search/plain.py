"""What an order is compared with: the same costs and a textbook annealing in plain Python, and all orders of a ring.

Written from the definitions alone, so that a mistake in the native costs would show as a difference. Latency only.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise, permutations

import numpy as np

from hocket.planning.ordering.matrix import Matrix

Cost = Callable[[Sequence[int]], float]
FIXED = 3
"""Places of a ring that are fixed while the rest is tried at once."""


def cost_of(matrix: Matrix, algorithm: str, *, base: int = 4, groups: Sequence[int] = ()) -> Cost:
    """The cost of an order, seconds."""
    rows: list[list[float]] = matrix.latency_s.tolist()
    count = len(rows)
    if algorithm == "ring":
        return lambda order: 2 * (count - 1) / count * _around(rows, order)
    if algorithm == "halving_doubling":
        pairs = [[(i, i ^ bit) for i in range(count) if i < i ^ bit] for bit in _powers(2, count)]
        return lambda order: 2 * sum(_slowest(rows, order, each) for each in pairs)
    if algorithm == "bcube":
        pairs = [
            [(i, j) for i in range(count) for j in range(i) if _digit(i, j, base, step)]
            for step in _powers(base, count)
        ]
        return lambda order: 2 * sum(_slowest(rows, order, each) for each in pairs)
    if algorithm == "double_binary_tree":
        return lambda order: 2 * max(_height(rows, order, 0, 0), _height(rows, order, 0, 1))
    return lambda order: _two_level(rows, order, groups)


def annealing(cost: Cost, count: int, *, seconds: float, seed: int) -> float:
    """The least cost that exchanging two hosts at a time finds, from a random order, in this much time."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    order = list(range(count))
    chance.shuffle(order)
    now = best = cost(order)
    first = 0.1 * now
    start = time.perf_counter()
    elapsed = 0.0
    while elapsed < seconds:
        temperature = first * 1e-4 ** (elapsed / seconds)
        for _ in range(100):
            a, b = chance.randrange(count), chance.randrange(count)
            order[a], order[b] = order[b], order[a]
            after = cost(order)
            if after <= now or chance.random() < math.exp((now - after) / temperature):
                now = after
                best = min(best, now)
            else:
                order[a], order[b] = order[b], order[a]
        elapsed = time.perf_counter() - start
    return best


def shortest_ring(matrix: Matrix) -> float:
    """The least cost of a ring by trying all orders with host 0 first."""
    latency_s = matrix.latency_s
    count = len(latency_s)
    fixed = min(FIXED, count - 1)
    tails = np.array(list(permutations(range(count - fixed))), dtype=np.int8)
    best = math.inf
    for head in permutations(range(1, count), fixed - 1):
        start = (0, *head)
        rest = np.array([host for host in range(count) if host not in start])
        tail = rest[tails]
        length = latency_s[start[-1], tail[:, 0]] + latency_s[tail[:, -1], 0]
        for place in range(tail.shape[1] - 1):
            length += latency_s[tail[:, place], tail[:, place + 1]]
        best = min(best, float(length.min()) + sum(latency_s[a, b] for a, b in pairwise(start)))
    return 2 * (count - 1) / count * best


def _powers(base: int, count: int) -> list[int]:
    return [base**digit for digit in range(round(math.log(count, base)))]


def _digit(i: int, j: int, base: int, step: int) -> bool:
    """Whether two numbers differ in the digit of that step alone."""
    return i // (step * base) == j // (step * base) and i % step == j % step


def _slowest(rows: list[list[float]], order: Sequence[int], pairs: list[tuple[int, int]]) -> float:
    return max(rows[order[a]][order[b]] for a, b in pairs)


def _around(rows: list[list[float]], order: Sequence[int]) -> float:
    return sum(rows[a][b] for a, b in pairwise(order)) + rows[order[-1]][order[0]]


def _height(rows: list[list[float]], order: Sequence[int], node: int, half: int) -> float:
    """Longest way from a leaf below a node up to it; trees as in `crates/program/src/passes/lower/tree.rs`."""
    count = len(order)

    def host(node: int) -> int:
        if half == 0:
            return order[node]
        return order[count - 1 - node] if count % 2 == 0 else order[(node + 1) % count]

    heights = [0.0] * count
    for child in sorted(range(1, count), key=lambda each: -_depth(each, count)):
        parent = _parent(child, count)
        heights[parent] = max(heights[parent], heights[child] + rows[host(child)][host(parent)])
    return heights[node]


def _parent(node: int, count: int) -> int:
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return node ^ bit if up >= count else up


def _depth(node: int, count: int) -> int:
    return 0 if node == 0 else 1 + _depth(_parent(node, count), count)


def _two_level(rows: list[list[float]], order: Sequence[int], groups: Sequence[int]) -> float:
    starts = [sum(groups[:at]) for at in range(len(groups))]
    chains = [
        sum(rows[a][b] for a, b in pairwise(order[start : start + size]))
        for start, size in zip(starts, groups, strict=True)
    ]
    leaders = [order[start] for start in starts]
    ring = 2 * (len(leaders) - 1) / len(leaders) * _around(rows, leaders) if len(leaders) > 1 else 0.0
    return 2 * max(chains) + ring

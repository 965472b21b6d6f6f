"""Latencies between hosts like those of a public cloud: racks, rows, jitter, pairs whose directions differ."""

from __future__ import annotations

import numpy as np

from hocket.planning.ordering.matrix import Matrix, build

RACK_S, ROW_S, HALL_S = 20e-6, 60e-6, 150e-6
"""One way within a rack, within a row, between rows."""

RACK_HOSTS = (8, 40)
"""A tenant's share of a rack."""

RACKS_A_ROW = 6
JITTER = 0.2
"""Standard deviation of the logarithm of each direction's latency."""


def data_centre(hosts: int, seed: int) -> Matrix:
    """Hosts in the order that a scheduler might give them: none.

    >>> data_centre(10, 0).latency_s.shape
    (10, 10)
    """
    random = np.random.default_rng(seed)
    sizes = random.integers(*RACK_HOSTS, size=hosts)
    racks = np.repeat(np.arange(hosts), sizes)[:hosts]
    place = random.permutation(hosts)
    racks, rows = racks[place], racks[place] // RACKS_A_ROW
    same_rack, same_row = racks[:, None] == racks, rows[:, None] == rows
    base = np.where(same_rack, RACK_S, np.where(same_row, ROW_S, HALL_S))
    return build(
        [f"host{index}" for index in range(hosts)], base * random.lognormal(0, JITTER, base.shape), None
    )

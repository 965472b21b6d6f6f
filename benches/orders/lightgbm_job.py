"""LightGBM's distributed training, unmodified, in an order of the machines: the first one in `machines` is its rank 0."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hocket.errors import UsageError

PORT_FIRST = 12_400
ROWS, FEATURES, BINS, LEAVES = 2000, 28, 63, 15
WARM_UP = 1


def train(host: int, order: list[int], machines: list[str], name: str, rounds: int) -> float:
    """Seconds per boosting round on this host's own rows. `name`: turn/index, for a port that was not used before."""
    try:
        import lightgbm  # noqa: PLC0415  # only this workload needs it
    except ImportError:
        raise UsageError("LightGBM is not here\nhint: pip install lightgbm") from None
    turn, at = map(int, name.split("/"))
    port = PORT_FIRST + 100 * turn + at
    draws = np.random.default_rng(host)
    inputs = draws.standard_normal((ROWS, FEATURES))
    targets = inputs[:, :8].sum(axis=1) + np.sin(3 * inputs[:, 8]) + 0.1 * draws.standard_normal(ROWS)
    ends_s: list[float] = []

    def mark(_environment: Any) -> None:
        ends_s.append(time.perf_counter())

    parameters = {
        "objective": "regression",
        "tree_learner": "data",
        "num_machines": len(machines),
        "machines": ",".join(f"{machines[each]}:{port}" for each in order),
        "local_listen_port": port,
        "pre_partition": True,
        "num_leaves": LEAVES,
        "max_bin": BINS,
        "num_threads": 1,
        "time_out": 1,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(inputs, targets, params={"max_bin": BINS, "verbosity": -1})
    lightgbm.train(parameters, data, num_boost_round=WARM_UP + rounds, callbacks=[mark])
    return (ends_s[-1] - ends_s[WARM_UP - 1]) / rounds

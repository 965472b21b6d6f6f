"""One rank of `python -m benches late --row shares`: steps of ranks of unequal speed, with equal batches and with shares of them.

Computation is a wait, of so much for a sample on the fastest rank that other work on the machine adds little. Rank 0 writes the
medians of steps by kind, in seconds, and the largest difference of a gradient from that of one process with the whole batch, as
JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import hocket.torch as hk
from hocket.torch.in_training import distributed_of
from hocket.training.loop.speed import STEPS, WARM_UP_STEPS

SPEEDS = (1.0, 1.0, 0.5, 0.25)
BATCH, SAMPLE_S, COUNTED = 32, 5e-3, 12
WIDTH = 16


def main() -> None:
    """Train with each kind of shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Linear(WIDTH, 1)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    kinds: dict[str, Any] = {"even": None, "shares": SPEEDS, "measured": "measured"}
    found = {kind: trained(model, optimizer, kind, shares) for kind, shares in kinds.items()}
    if hk.rank(model) == 0:
        steps_s = {kind: step_s for kind, (step_s, _) in found.items()}
        out.write_text(json.dumps({"steps_s": steps_s, "differs": max(each for _, each in found.values())}))


def trained(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, kind: str, shares: Any
) -> tuple[float, float]:
    """Train some steps; return the median time of the last ones, and the largest difference of a gradient."""
    job, worst, ends_s = distributed_of(model).session.job, 0.0, [time.perf_counter()]
    data = torch.randn(
        BATCH * job.world * (WARM_UP_STEPS + STEPS + COUNTED),
        WIDTH,
        generator=torch.Generator().manual_seed(2),
    )
    numbered = torch.utils.data.TensorDataset(torch.arange(len(data)), data)
    for at, (numbers, rows) in enumerate(hk.batches(model, numbered, BATCH, shares=shares, name=kind)):
        time.sleep(len(rows) * SAMPLE_S / SPEEDS[job.rank])
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        if at == 0 and shares is not None:
            given = job.store.gather(f"drawn/{kind}", job.rank, job.world, numbers.tolist(), 60)
            union = data[[each for own in given for each in own]]
            alone = torch.nn.Linear(WIDTH, 1)
            alone.load_state_dict(model.state_dict())
            alone(union).square().mean().backward()
            pairs = zip(model.parameters(), alone.parameters(), strict=True)
            worst = max(_off(mine.grad, own.grad) for mine, own in pairs)
        optimizer.step()
        ends_s.append(time.perf_counter())
    steps_s = [end_s - begun_s for begun_s, end_s in itertools.pairwise(ends_s)]
    return median(steps_s[-COUNTED:-1]), worst


def _off(mine: torch.Tensor | None, own: torch.Tensor | None) -> float:
    if mine is None or own is None:
        raise ValueError("a parameter has no gradient")
    return float((mine - own).norm() / own.norm())


if __name__ == "__main__":
    main()

"""One rank of `python -m benches owners`: trains two models in turns, one of which its owners update.

`python -m benches.owners.rank --out FILE`. Rank 0 writes what `rows` shows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import Owned, Owner, Plan
from hocket.planning.buckets import plan_of
from hocket.planning.default import by_hosts, default_plan
from hocket.settings import Settings
from hocket.torch.framework import Torch
from hocket.training.memory.gradients import gradients_of

WIDTH, LAYERS = 512, 6
TURNS, STEPS, WARM_UP = 12, 5, 3
"""Of each turn, so many steps do not count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    world = Settings.from_environment().world or 1
    jobs = {update: _begun(update, world) for update in ("replicas", "owners")}
    steps_s: dict[str, list[float]] = {update: [] for update in jobs}
    draw = torch.Generator().manual_seed(hk.rank(jobs["owners"][0]))
    for _ in range(TURNS):
        batches = [torch.randn(16, WIDTH, generator=draw) for _ in range(WARM_UP + STEPS)]
        for update, (model, optimizer) in jobs.items():
            steps_s[update] += [_step(model, optimizer, each) for each in batches][WARM_UP:]
    (replicas, _), (owners, optimizer) = jobs["replicas"], jobs["owners"]
    pairs = zip(replicas.parameters(), owners.parameters(), strict=True)
    whole = _bytes(hk.optimizer_state(owners)["state"])
    found = {
        "replicas_s": median(steps_s["replicas"]),
        "owners_s": median(steps_s["owners"]),
        "share": _bytes(optimizer.state) / whole,
        "world": hk.world(owners),
        "differ": sum(int((a != b).sum()) for a, b in pairs),
    }
    if hk.rank(owners) == 0:
        out.write_text(json.dumps(found))


def _begun(update: Literal["replicas", "owners"], world: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return hk.distribute(model, optimizer, plan=_plan(model, optimizer, update, world))


def _plan(
    model: nn.Module, optimizer: torch.optim.Optimizer, update: Literal["replicas", "owners"], world: int
) -> Plan:
    """The default's buckets, each owned by all ranks in equal parts."""
    gradients = gradients_of(Torch(model, optimizer).parameters())
    route = Owned(owners=tuple(Owner(rank=rank) for rank in range(world)), update=update)
    default = default_plan(list(gradients.values())[::-1], by_hosts(["host"] * world))
    buckets = [msgspec.structs.replace(each, route=route) for each in default.buckets]
    return plan_of(buckets, world, label=update)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> float:
    began_s = time.perf_counter()
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    return time.perf_counter() - began_s


def _bytes(state: Mapping[Any, Mapping[str, Any]]) -> int:
    held = [each for own in state.values() for each in own.values() if isinstance(each, torch.Tensor)]
    return sum(each.numel() * each.element_size() for each in held if each.dim())


if __name__ == "__main__":
    main()

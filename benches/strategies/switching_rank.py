"""One rank of `python -m benches strategies --row switching`: trains, and changes between two prepared plans again and again.

`python -m benches.strategies.switching_rank WIDTH LAYERS SWITCHES --out FILE`. Rank 0 writes the numbers for `switching`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.planning.buckets import buckets, plan_of
from hocket.policy.bucketing import bucketed
from hocket.policy.epoch import Epoch
from hocket.settings import Settings
from hocket.torch.framework import Torch
from hocket.torch.in_training import distributed_of
from hocket.training.autopilot.plans import Plans
from hocket.training.memory.gradients import gradients_of
from hocket.training.step.reducing import ReducingSession

APART = 4
"""Steps of an epoch."""
STEADY, WARM_UP = 12, 3
"""Steps of each plan alone, and the first of these, which do not count."""
SETTLED = 20
"""Switches after which memory is measured for the first time."""
SIZES_BYTES = (4 << 20, 1 << 20)
"""Bucket sizes of the plans."""
PLAN = "plan"


def main() -> None:
    width, layers, switches, out = *map(int, sys.argv[1:4]), Path(sys.argv[5])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    own = gradients_of(Torch(model, optimizer).parameters())
    world = Settings.from_environment().world or 1
    plans = [_plan(own, size, world) for size in SIZES_BYTES]
    hk.distribute(model, optimizer, plan=plans[0])
    session = distributed_of(model).session
    assert isinstance(session, ReducingSession)  # noqa: S101  # of plans without turns
    held = Plans(own, session.job)
    keys = [held.hold(plan) for plan in plans]
    source = session.source
    source.plan = lambda epoch: held.plan(_key(epoch, keys))
    source.make = lambda epoch: held.programs(_key(epoch, keys))
    data = torch.randn(4, width, generator=torch.Generator().manual_seed(session.job.rank))

    def step() -> float:
        began_s = time.perf_counter()
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        return time.perf_counter() - began_s

    def switch(to: int) -> None:
        """Announce a plan on all ranks in one step: the next one ends with it in force."""
        source.epochs.learn(source.epochs.current.after({PLAN: keys[to]}))

    steady_s = []
    for at in (0, 1):
        if at:
            switch(at)
            step()
        steady_s.append(median([step() for _ in range(STEADY)][WARM_UP:]))
    lost, memory = [], []
    for number in range(switches):
        to = number % 2
        switch(to)
        # The step in which it begins is the last one of the plan before.
        took_s = sum(step() for _ in range(APART))
        expected_s = steady_s[1 - to] + (APART - 1) * steady_s[to]
        lost.append((took_s - expected_s) / median(steady_s))
        memory.append(_resident_bytes())
    if session.job.rank == 0:
        found = {
            "lost": median(lost),
            "steps_s": steady_s,
            "grown_bytes": memory[-1] - memory[min(SETTLED, switches - 1)],
        }
        out.write_text(json.dumps(found))


def _key(epoch: Epoch, keys: list[str]) -> str:
    return str(epoch.agreed.get(PLAN, keys[0]))


def _plan(own: dict[str, Gradient], size_bytes: int, world: int) -> Plan:
    made = buckets(bucketed(list(own.values())[::-1], size_bytes), AllReduce(algorithm="ring"), range(world))
    return plan_of(made, world, label=f"{size_bytes >> 20} MiB")


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


if __name__ == "__main__":
    main()

"""A rank that trains until its order has changed because a link became slow: `reorder_rank.py OUT STEPS SLOW_AT A,B`."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.planning.buckets import buckets, plan_of
from hocket.tools.testbed import wiring

SIDE = 512
AFTER = 10
"""Steps in the new order."""
FAST, SLOW = "400mbit", "50mbit"


def make_slow(other: int) -> None:
    """What this host sends to another one, from now on; nothing else."""
    for line in (
        "qdisc replace dev eth0 root handle 1: htb default 1",
        f"class add dev eth0 parent 1: classid 1:1 htb rate {FAST} quantum 60000",
        f"class add dev eth0 parent 1: classid 1:2 htb rate {SLOW} quantum 60000",
        f"filter add dev eth0 parent 1: protocol ip u32 match ip dst {wiring.address(other)} flowid 1:2",
    ):
        subprocess.run(["tc", *line.split()], check=True, capture_output=True)


def main() -> None:
    """One rank; it gives up after STEPS steps."""
    out, steps, slow_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    slow = [int(each) for each in sys.argv[4].split(",")]
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = nn.Linear(SIDE, SIDE, bias=False)
    weight = Gradient("weight", (SIDE, SIDE), "f32")
    plan = plan_of(buckets([[weight]], AllReduce(algorithm="ring"), range(world)), world, label="ring")
    model, optimizer = hk.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), plan=plan
    )
    inputs = torch.randn(8, SIDE)
    epochs = []
    for step in range(steps):
        if step == slow_at and rank in slow:
            make_slow(next(each for each in slow if each != rank))
        epochs.append(hk.agreed(model)["epoch"])
        # Every rank sees an epoch in the same step, so they end together.
        if step >= slow_at + AFTER and epochs[-AFTER] > epochs[slow_at]:
            break
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    digest = hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest()
    (out / f"{rank}.json").write_text(json.dumps({"epochs": epochs, "digest": digest}))


if __name__ == "__main__":
    main()

"""A rank that trains until its order has changed because a link became slow: `reorder_rank.py OUT STEPS SLOW_AT A,B KIND`.

KIND is `trains`, or what one more rank does: `serves` or `helps`.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Owned, Owner, Plan, Served
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


def made(rank: int) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    """A rank's model and optimizer, and its inputs."""
    torch.manual_seed(rank)
    model = nn.Linear(SIDE, SIDE)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), torch.randn(8, SIDE)


def plan_for(kind: str, workers: int) -> Plan:
    """The weight goes around the ring of workers; so does the bias, or it goes over one more rank."""
    everyone = tuple(range(workers))
    weight, bias = Gradient("weight", (SIDE, SIDE), "f32"), Gradient("bias", (SIDE,), "f32")
    ring = AllReduce(algorithm="ring")
    own = buckets([[weight], [bias]], ring, everyone)
    if kind == "trains":
        return plan_of(own, workers, label="ring")
    helped = kind == "helps"
    other = msgspec.structs.replace(
        own[1],
        route=Owned(owners=(Owner(rank=workers),)) if helped else Served(servers=(workers,)),
        order=(*everyone, workers) if helped else everyone,
    )
    plan = plan_of([own[0], other], workers + 1, label="ring and more")
    return msgspec.structs.replace(plan, workers=everyone)


def alone(workers: int, steps: int) -> torch.Tensor:
    """The weight that one process makes of the same steps."""
    model, optimizer, _ = made(0)
    everyones = [made(rank)[2] for rank in range(workers)]
    for _ in range(steps):
        optimizer.zero_grad()
        torch.stack([model(inputs).square().mean() for inputs in everyones]).mean().backward()
        optimizer.step()
    return model.weight.detach()


def main() -> None:
    """One rank; it gives up after STEPS steps."""
    out, steps, slow_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    slow = [int(each) for each in sys.argv[4].split(",")]
    kind, rank = sys.argv[5], int(os.environ["HOCKET_RANK"])
    workers = int(os.environ["HOCKET_WORLD"]) - (kind != "trains")
    torch.set_num_threads(1)
    model, optimizer, inputs = made(rank)
    model, optimizer = hk.distribute(model, optimizer, plan=plan_for(kind, workers))
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
    torch.save(model.weight.detach(), out / f"{rank}.pt")
    (out / f"{rank}.json").write_text(json.dumps({"epochs": epochs, "digest": digest}))


if __name__ == "__main__":
    main()

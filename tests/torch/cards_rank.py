"""A rank of a job on hosts with two cards, whose last rank serves or helps: `cards_rank.py OUT KIND CARD`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import Bucket, Owned, Owner, Part, Plan, Served
from hocket.planning.buckets import plan_of

WORKERS, STEPS, SIDE = 2, 4, 300


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIDE, SIDE), nn.Tanh(), nn.Linear(SIDE, SIDE))


def plan(kind: str, card: int) -> Plan:
    """All gradients go over the last rank, in a bucket that keeps to a card."""
    idle, workers = WORKERS, tuple(range(WORKERS))
    sizes = {name: each.numel() for name, each in network().named_parameters()}
    bucket = Bucket(
        parts=tuple(Part(variable=name, stop=size) for name, size in sizes.items()),
        elements=sum(sizes.values()),
        dtype="f32",
        route=Served(servers=(idle,)) if kind == "serves" else Owned(owners=(Owner(rank=idle),)),
        order=workers if kind == "serves" else (*workers, idle),
        priority=0,
        cards=(card,),
    )
    return msgspec.structs.replace(plan_of([bucket], WORKERS + 1, label="to a card"), workers=workers)


def loss_of(model, step: int, rank: int):
    drawn = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randn(4, SIDE, generator=drawn)).square().mean()


def alone() -> list[torch.Tensor]:
    """Parameters after the same steps, made by one process."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.stack([loss_of(model, step, rank) for rank in range(WORKERS)]).mean().backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


def sent() -> dict[str, int]:
    """Bytes that left this host, by card."""
    found = json.loads(subprocess.run(["ip", "-s", "-j", "link"], capture_output=True, check=True).stdout)
    return {each["ifname"]: each["stats64"]["tx"]["bytes"] for each in found}


def main() -> None:
    out, kind, card = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    before = sent()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    file = out / f"{os.environ['HOCKET_RANK']}"
    try:
        model, optimizer = hk.distribute(model, optimizer, plan=plan(kind, card))
        started = sent()
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step, hk.rank(model)).backward()
            optimizer.step()
        # Values of servers come at the next forward.
        model(torch.zeros(1, SIDE))
        torch.save([each.detach() for each in model.parameters()], file.with_suffix(".pt"))
        before = started
    finally:
        after = sent()
        moved = {name: after[name] - before.get(name, 0) for name in after}
        file.with_suffix(".json").write_text(json.dumps(moved))


if __name__ == "__main__":
    main()

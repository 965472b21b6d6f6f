"""What ranks of `test_observed_order.py` do."""

import os

import torch
from torch import nn

import hocket.torch as hk
from benches.ddp.networks import Backwards
from hocket import Policy
from hocket.torch.in_training import distributed_of

RANK = int(os.environ.get("HOCKET_RANK", "0"))


class Ordered(Policy):
    """What forward needs first goes first; remembers what it was told."""

    seen = {}  # noqa: RUF012  # of this process

    def on_tensor_ready(self, cx, grad):
        self.seen[grad.name] = (grad.backward_order, grad.forward_order)
        cx.enqueue(grad, priority=grad.forward_order)


def _train(model, optimizer, steps):
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8, generator=generator)).square().mean().backward()
        optimizer.step()


def _buckets(model):
    session = distributed_of(model).session
    return [sorted(bucket.names) for bucket in session.buckets]


def backwards(kind):
    """A model that registers its last layer first: epoch and buckets before and after, and what a policy was told."""
    torch.manual_seed(0)
    Ordered.seen.clear()
    model = Backwards()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = Ordered() if kind == "policy" else None
    model, optimizer = hk.distribute(model, optimizer, policy=policy)
    before = _buckets(model)
    _train(model, optimizer, 4)
    numbers = [float(each.double().sum()) for each in model.parameters()]
    return [hk.agreed(model)["epoch"], before, _buckets(model), numbers, dict(Ordered.seen)]


def forwards():
    model = nn.Sequential(nn.Linear(8, 600), nn.BatchNorm1d(600), nn.Linear(600, 600), nn.Linear(600, 4))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    _train(model, optimizer, 4)
    return hk.agreed(model)["epoch"]


def other_ways():
    """Backward takes another way through the layers on each rank."""
    Ordered.seen.clear()
    model = nn.ModuleList([nn.Linear(8, 8, bias=False) for _ in range(4)])
    policy = Ordered()
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), policy=policy)
    for _ in range(3):
        optimizer.zero_grad()
        h = torch.ones(2, 8)
        for each in (1, 3, 0, 2) if RANK == 0 else (2, 0, 1, 3):
            h = model[each](h)
        h.sum().backward()
        optimizer.step()
    return sorted(Ordered.seen, key=lambda name: Ordered.seen[name][1])

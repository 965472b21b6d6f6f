"""Gates in one process: a bucket's gradients are NaN from the end of backward until somebody waits for it."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import nn

from hocket.errors import PeerError
from hocket.torch.gates import Gates

STEPS = 5


class Wire:
    """Stands for the session: keeps true gradients aside until `wait`, and says what happened in which order."""

    def __init__(self, model, optimizer, buckets=None):
        self.buckets = buckets or per_parameter(model)
        self.kept = {}
        self.events = []
        self.dead = set()
        self.gates = Gates(model, optimizer, self.buckets, self.wait)

    def wait(self, bucket):
        if bucket in self.dead:
            raise PeerError("rank 3 died", rank=3, why="lost")
        if bucket in self.kept:
            self.events.append(bucket)
            for parameter, gradient in zip(self.buckets[bucket], self.kept.pop(bucket), strict=True):
                parameter.grad = gradient

    def backward(self, loss):
        self.gates.backward_began()
        loss.backward()
        for index, bucket in enumerate(self.buckets):
            self.kept[index] = [each.grad for each in bucket]
            for each in bucket:
                # As in memory that is being reduced: something is there, but not the gradient.
                each.grad = torch.full_like(each, torch.nan)
        self.gates.backward_ended()


def per_parameter(model):
    """The last parameter first, as backward makes them."""
    return [[each] for each in reversed(list(model.parameters()))]


def in_pairs(model):
    ordered = list(reversed(list(model.parameters())))
    return [ordered[at : at + 2] for at in range(0, len(ordered), 2)]


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def inputs(step, shape=(3, 4)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(step))


def values(model):
    # Around the gates, so that looking does not open them.
    return [each.detach().clone() for each in type(model).parameters(model)]


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def gated(model=perceptron, kind=torch.optim.SGD, **options):
    made = model()
    optimizer = kind(made.parameters(), lr=0.1, **options)
    return made, optimizer, Wire(made, optimizer)


def train(gated, model, optimizer, *, buckets=in_pairs, shape=(3, 4), before=None, after=None, zero=True):
    """Parameters after some steps, and what `after` returned; `before` and `after` `step()` get a Run."""
    run = Run()
    run.model = model()
    run.optimizer = optimizer(run.model)
    run.wire = Wire(run.model, run.optimizer, buckets(run.model)) if gated else None
    seen = []
    for run.step in range(STEPS):
        if zero:
            run.optimizer.zero_grad()
        run.backward(run.model(inputs(run.step, shape)).square().sum())
        if before:
            before(run)
        run.optimizer.step()
        if after:
            seen.append(after(run))
    if gated:
        run.wire.gates.open_all()
    return [*values(run.model), *(torch.as_tensor(each) for each in seen if each is not None)]


def flat(optimizer):
    state = [each for _, each in sorted(optimizer.state_dict()["state"].items())]
    kept = [each[key] for each in state for key in sorted(each) if isinstance(each[key], torch.Tensor)]
    return torch.cat([each.flatten() for each in [torch.zeros(0), *kept]])


class Run(SimpleNamespace):
    """A loop at one of its steps; `wire` is None in the plain loop."""

    def backward(self, loss):
        if self.wire:
            self.wire.backward(loss)
        else:
            loss.backward()


def same(model=perceptron, optimizer=None, **options):
    """The loop with gates ends at the bits of the plain one."""
    optimizer = optimizer or partial(groups, kind=torch.optim.SGD, momentum=0.9)
    assert_same(*(train(gated, model, optimizer, **options) for gated in (True, False)))


def groups(model, kind, **options):
    parameters = list(model.parameters())
    if kind is getattr(torch.optim, "Muon", None):
        parameters = [each for each in parameters if each.ndim == 2]
    return kind([{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.003}], lr=0.01, **options)


def weights_only():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Linear(8, 2, bias=False)
    )


class Odd(nn.Module):
    """Parameters used by other modules than theirs, by two, by none, by the root."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.third = nn.Linear(4, 4)
        self.third.weight = self.first.weight
        self.borrowed = nn.Linear(4, 4, bias=False)
        self.unused = nn.Linear(4, 4)
        self.offset = nn.Parameter(torch.ones(4))
        self.kept_view = self.second.bias.detach()
        self.recurrent = nn.LSTM(4, 4)

    def forward(self, x):
        x = self.first(x) * self.kept_view
        x = self.second(x) @ self.borrowed.weight
        x = self.third(torch.tanh(x)) + self.offset
        return self.recurrent(x[None])[0]


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

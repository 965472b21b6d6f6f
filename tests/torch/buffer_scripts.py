"""What ranks of `test_module_buffers.py` do."""

import copy
import hashlib
import io
import os

import torch
from torch import nn

import hocket.torch as hk
from hocket import Policy
from hocket.torch.in_training import distributed_of

RANK = int(os.environ.get("HOCKET_RANK", "0"))


def digest(tensors):
    found = hashlib.sha256()
    for name, each in sorted(tensors.items()):
        found.update(
            name.encode() + each.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return found.hexdigest()


class Gated(Policy):
    gates = True


class Rare(nn.Module):
    """Buffers that no usual layer has; `late` changes from the third step on, `odd` becomes NaN."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Linear(9, 2))
        self.register_buffer("late", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("odd", torch.zeros(2))
        self.register_buffer("flags", torch.zeros(5, dtype=torch.bool))
        self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("nothing", None)
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("hidden", torch.zeros(1, dtype=torch.complex64), persistent=False)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 2:
            self.late += float(x.detach().sum())
            self.turned[0, 1] = x.detach().mean()
        if self.calls > 3:
            self.odd[0] = float("nan")
            self.hidden = self.hidden + 1j * float(x.detach().max())
        # Each rank its own, and not rank 0: what rank 0 told is what it is to be again.
        if RANK == 1:
            self.flags[2] = True
        return self.body(x)


def _train(model, optimizer, generator, steps):
    for _ in range(steps):
        model(torch.randn(4, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def looks(policy):
    """After each step: digests of the buffers as a user may look at them, rank 0 saving alone in between."""
    torch.manual_seed(RANK)
    model = Rare()
    model, optimizer = hk.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.01), policy={"none": None, "gates": Gated()}[policy]
    )
    generator = torch.Generator().manual_seed(10 + RANK)
    seen = []
    for step in range(6):
        _train(model, optimizer, generator, 1)
        # Read by hand where nothing is put off to the next forward.
        own = {name: each for module in model.modules() for name, each in module._buffers.items()}
        named = {name: each for name, each in own.items() if each is not None}
        seen.append(digest(named if policy == "none" else dict(model.named_buffers())))
        if RANK == 0 and step % 2:
            torch.save(model.state_dict(), io.BytesIO())
        model.eval()
        with torch.no_grad():
            seen.append(digest({"out": model.body(torch.ones(2, 6))}))
        seen.append(digest(dict(copy.deepcopy(model).named_buffers())))
        model.train()
    return seen


def rank_zero(kind):
    """Rank 0's buffers after some steps: alone from the same batches, and with another rank."""
    torch.manual_seed(0)
    model = Rare()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    if kind == "together":
        model, optimizer = hk.distribute(model, optimizer)
    _train(model, optimizer, torch.Generator().manual_seed(10 + RANK), 5)
    return digest(dict(model.named_buffers()))


def traffic():
    """Bytes of broadcasts by step: a large buffer that nobody changes, and one that grows once."""
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    model.register_buffer("mask", torch.zeros(1_000_000))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    generator = torch.Generator().manual_seed(RANK)
    buffers = distributed_of(model).buffers
    sizes = []
    for step in range(4):
        if step == 2:
            model.mask = torch.full((3,), float(RANK))
        _train(model, optimizer, generator, 1)
        sent = buffers._mirror
        sizes.append([sent.live_bytes, sent.live_count])
    return [sizes, model.mask.tolist()]


def differ():
    """Rank 1 has a buffer that rank 0 does not have."""
    model = nn.Linear(3, 2)
    if RANK == 1:
        model.register_buffer("extra", torch.zeros(4))
    hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))


def kept_graph():
    """Two backward passes through one graph, whose batch norm's statistics are given to rank 1 in between."""
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model, _ = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(2):
        out = model(torch.randn(4, 6, generator=generator))
        out.square().mean().backward(retain_graph=True)
        out.abs().mean().backward()
    return digest(dict(model.named_buffers()))


class Caching(nn.Module):
    """A table that grows with the data, as rotary embeddings have it, and statistics that are there from the first forward on."""

    def __init__(self, persistent):
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.persistent = persistent

    def forward(self, x, length):
        if not hasattr(self, "table") or len(self.table) < length:
            self.register_buffer("table", torch.arange(float(length)).cos(), persistent=self.persistent)
        if not hasattr(self, "mean"):
            self.register_buffer("mean", torch.zeros(6))
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.5)
        return self.body(x) * self.table[length - 1]


def caches(how):
    """Ranks with sequences of other lengths; rank 0 evaluates a longer one in between. By step: statistics, length of the table."""
    torch.manual_seed(RANK)
    model = Caching(persistent=False)
    if how == "beside others":
        model.register_buffer("other", torch.ones(2))
    policy = Gated() if how == "gates" else None
    buffers = how if how == "before_forward" else None
    model, optimizer = hk.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.01), buffers=buffers, policy=policy
    )
    generator = torch.Generator().manual_seed(10 + RANK)
    found = []
    for step in range(5):
        model(torch.randn(4, 6, generator=generator), 3 + step * RANK).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if RANK == 0:
            with torch.no_grad():
                model.body(torch.ones(2, 6))
                model.table = torch.arange(8.0 + step).cos()
        named = dict(model.named_buffers())
        found.append([named["mean"].tolist(), len(named["table"])])
    model(torch.randn(4, 6, generator=generator), 1)
    found.append([model.mean.tolist() if how == "before_forward" else None, len(model.table)])
    return found


def kept_cache():
    model = Caching(persistent=True)
    model, _ = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for step in range(3):
        model(torch.randn(4, 6), 3 + step * RANK).square().mean().backward()


def copies(how):
    """A copy and a pickle of a model whose buffers are broadcast before forward are calls of one rank alone."""
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), buffers=how)
    generator = torch.Generator().manual_seed(RANK)
    _train(model, optimizer, generator, 2)
    if RANK == 1:
        copy.deepcopy(model)(torch.ones(4, 6))
        saved = io.BytesIO()
        torch.save(model, saved)
        saved.seek(0)
        torch.load(saved, weights_only=False)(torch.ones(4, 6))
    _train(model, optimizer, generator, 2)
    return True

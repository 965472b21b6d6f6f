"""What workers of parameter servers do in `test_parameter_servers.py`."""

import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import hocket.torch as hk

STEPS = 12
BATCH = 12

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, betas=(0.8, 0.99)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5),
}


class Net(nn.Module):
    """`wide` has more elements than are kept on one server when there are several."""

    def __init__(self, wide=1024):
        super().__init__()
        self.first = nn.Linear(20, wide)
        self.wide = nn.Linear(wide, wide)
        self.last = nn.Linear(wide, 7)

    def forward(self, x):
        return self.last(self.wide(self.first(x).relu()).relu())


def groups(model):
    """Two groups, of which one has its own learning rate."""
    return [
        {"params": [*model.first.parameters(), *model.last.parameters()]},
        {"params": model.wide.parameters(), "lr": 5e-3},
    ]


def _batches(part=None, of=1):
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        x, y = torch.randn(BATCH, 20, generator=generator), torch.randint(0, 7, (BATCH,), generator=generator)
        yield (x, y) if part is None else (x.chunk(of)[part], y.chunk(of)[part])


def _train(model, optimizer, batches, *, closes=False, factor=lambda _: 1.0):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
    for step, (x, y) in enumerate(batches):
        closure = partial(_backward, model, optimizer, x, y)
        rates = [group["lr"] for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor(step)
        if closes:
            assert optimizer.step(closure) is not None
        else:
            closure()
            optimizer.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        scheduler.step()
    return [each.detach().double().sum().item() for each in model.parameters()] + [
        each.detach().double().square().sum().item() for each in model.parameters()
    ]


def _backward(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


def alone(optimizer, wide, factor=lambda _: 1.0):
    torch.manual_seed(0)
    model = Net(int(wide))
    return _train(model, OPTIMIZERS[optimizer](groups(model)), _batches(), factor=factor)


def half_later(step):
    """The factor of a rate for twice as many ranks, in three steps."""
    return 1 - 0.5 * min(step + 1, 3) / 3


def train(optimizer, wide, scales=""):
    """A worker's part of each batch; workers begin with other parameters, which must not matter. `scales`: rates are for four."""
    torch.manual_seed(int(os.environ["HOCKET_RANK"]))
    model = Net(int(wide))
    model, made = hk.distribute(model, OPTIMIZERS[optimizer](groups(model)))
    if scales:
        hk.scale_lr(model, "linear", world=4, warmup=3)
    batches = _batches(hk.rank(model), hk.world(model))
    return _train(model, made, batches, closes=optimizer.startswith("adam"))


def uneven(pause_s):
    """The last worker is slow; everybody says when each of its steps ended."""
    model = nn.Linear(6, 3)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.05))
    slow = hk.rank(model) == hk.world(model) - 1
    ended, losses = [], []
    target = torch.ones(6, 3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(torch.randn(8, 6)), torch.randn(8, 6) @ target)
        loss.backward()
        optimizer.step()
        if slow:
            time.sleep(float(pause_s))
        ended.append(time.monotonic())
        losses.append(loss.item())
    return {"ended_s": ended, "norm": sum(each.norm().item() for each in model.parameters())}


def fewer(steps):
    """Worker 1 has less data than the others."""
    torch.manual_seed(1)
    model = nn.Linear(6, 3)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.05))
    for _ in range(int(steps) if hk.rank(model) == 1 else STEPS):
        optimizer.zero_grad()
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    return model.state_dict()["bias"].tolist()


class Sum(nn.Module):
    """Two weights, each with a gradient of 1 whatever they are; `late` gets its own last, after `pause` has returned."""

    def __init__(self, pause):
        super().__init__()
        self.late = nn.Parameter(torch.zeros(1))
        self.early = nn.Parameter(torch.zeros(1))
        self.pause = pause

    def forward(self):
        late = self.late * 1.0
        late.register_hook(self.pause)
        return late.sum() + self.early.sum()


def own_rate(folder):
    """Worker 0 pushes once, at a rate of 1; between its header and its last push worker 1 pushes three times, at a rate of 1/4."""
    folder, worker = Path(folder), int(os.environ["HOCKET_RANK"])

    def pause(gradient):
        if worker == 0:
            (folder / "in backward").touch()
            wait_for(folder / "others pushed")

    model = Sum(pause)
    model, optimizer = hk.distribute(
        model, torch.optim.SGD(model.parameters(), lr=1.0 if worker == 0 else 0.25)
    )
    if worker == 1:
        wait_for(folder / "in backward")
    for _ in range(1 if worker == 0 else 3):
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
    late = model.state_dict()["late"].item()
    (folder / "others pushed").touch()
    return late


def wait_for(path):
    """Until another worker has made the file."""
    deadline_s = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline_s, f"nobody made {path}"
        time.sleep(0.01)


def different_rates():
    """Each worker has a learning rate of its own."""
    model = nn.Linear(6, 3)
    rate = 0.1 * (1 + int(os.environ["HOCKET_RANK"]))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=rate))
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()


def accumulate():
    """Two backwards for each step, the first without communication; a running mean starts as worker 0's."""
    rank = int(os.environ["HOCKET_RANK"])
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(6, 3, bias=False), nn.BatchNorm1d(3, affine=False))
    model[1].running_mean.fill_(rank + 1)
    with torch.no_grad():
        model[0].weight.fill_(1)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=1.0))
    began = model[1].running_mean.tolist()
    first = model[0]
    with model.no_sync():
        first(torch.ones(1, 6)).sum().backward()
    refused = ""
    try:
        optimizer.step()
    except hk_errors() as error:
        refused = str(error)
    model.eval()(torch.full((1, 6), 2.0)).sum().backward()
    optimizer.step()
    return [began, refused, next(model.parameters())[0].tolist()]


def hk_errors():
    from hocket.errors import Error

    return Error


def limits():
    """What a worker that trains may not do."""
    model = nn.Linear(6, 3)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    said = []

    def attempt(call):
        with suppress(RuntimeError):
            try:
                call()
            except hk_errors() as error:
                said.append(str(error))

    model(torch.ones(2, 6)).sum().backward()
    attempt(lambda: hk.clip_grad_norm_(model, 1.0))
    attempt(lambda: torch.amp.GradScaler("cpu").step(optimizer))
    other = nn.Linear(2, 2)
    attempt(lambda: hk.distribute(other, torch.optim.SGD(other.parameters(), lr=0.1)))
    optimizer.step()
    optimizer.param_groups[0]["nesterov"] = True
    attempt(lambda: model(torch.ones(2, 6)).sum().backward())
    return said


def again():
    """Trained, given another last layer, and trained again, on servers each time."""
    torch.manual_seed(int(os.environ["HOCKET_RANK"]))
    model = Net(32)
    model, optimizer = hk.distribute(model, OPTIMIZERS["sgd"](groups(model)))
    batches = list(_batches(hk.rank(model), hk.world(model)))
    found = _train(model, optimizer, batches)
    torch.manual_seed(7 + hk.rank(model))
    model.last = nn.Linear(32, 7)
    model, optimizer = hk.distribute(model, OPTIMIZERS["sgd"](groups(model)))
    return found + _train(model, optimizer, batches)


def again_alone():
    """The same in one process, from the values of rank 0."""
    torch.manual_seed(0)
    model, batches = Net(32), list(_batches())
    found = _train(model, OPTIMIZERS["sgd"](groups(model)), batches)
    torch.manual_seed(7)
    model.last = nn.Linear(32, 7)
    return found + _train(model, OPTIMIZERS["sgd"](groups(model)), batches)


def die(who, how):
    """Worker 1, or a server by its process, ends in the middle of training."""
    model = nn.Linear(6, 3)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        if step == 3 and who == "worker" and hk.rank(model) == 1:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the data is rotten")
        if step == 3 and who == "server" and hk.rank(model) == 0:
            os.kill(_server(), signal.SIGKILL)
        if step == 3 and how == "stall" and hk.rank(model) == 1:
            time.sleep(8)  # twice the time-out that its test sets
    return "ended"


def _server():
    """The process of the server rank, which runs the same script and waits in `distribute`; `ranks.py` has noted it."""
    return int((Path(sys.argv[1]) / "2.process").read_text())

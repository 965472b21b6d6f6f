"""What ranks of the adapter's tests do; `test_adapter.py` runs these through `ranks.run`."""

import ctypes
import os
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn

import hocket.torch as hk

RANK = int(os.environ.get("HOCKET_RANK", "0"))
WORLD = int(os.environ.get("HOCKET_WORLD", "1"))


class Mixed(nn.Module):
    """An embedding, a convolution with batch norm (integer and float buffers) and a linear layer; `spare` on demand."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        # No bias: batch norm would cancel it, and Adam would amplify what rounding leaves of its gradient.
        self.conv = nn.Conv1d(16, 24, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(24)
        self.out = nn.Linear(24, 10)
        self.spare = nn.Linear(24, 10)

    def forward(self, x, use_spare=False):
        h = self.norm(self.conv(self.embed(x).transpose(1, 2))).relu().mean(2)
        return self.out(h) + (self.spare(h) if use_spare else 0)


def _start(kind, optimizer="sgd", **ddp_options):
    """The same model everywhere for DDP; for Hocket other ranks start elsewhere, and must be given rank 0's."""
    torch.manual_seed(0 if kind == "ddp" else RANK)
    model = Mixed()
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
        "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    }[optimizer]
    if kind == "ddp":
        address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
        if not dist.is_initialized():
            dist.init_process_group("gloo", init_method=address, rank=RANK, world_size=WORLD)
        model = nn.parallel.DistributedDataParallel(model, **ddp_options)
        return model, make(model.parameters())
    return hk.distribute(model, make(model.parameters()))


def _batch(generator):
    return torch.randint(0, 40, (16, 6), generator=generator), torch.randint(
        0, 10, (16,), generator=generator
    )


def _numbers(model):
    return [each.detach().double().flatten().tolist() for each in model.parameters()]


def train(kind, optimizer, clip):
    """50 steps."""
    model, optimizer = _start(kind, optimizer, find_unused_parameters=True)
    generator = torch.Generator().manual_seed(100 + RANK)
    for _ in range(50):
        x, y = _batch(generator)
        nn.functional.cross_entropy(model(x), y).backward()
        if clip == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return _numbers(model)


def resume(path):
    """Trains, saves, and goes on from the file in a model whose other ranks know nothing."""
    model, optimizer = _start("hocket", "adam")
    keys = list(model.state_dict())
    generator = torch.Generator().manual_seed(100 + RANK)

    def steps(model, optimizer, count):
        for _ in range(count):
            x, y = _batch(generator)
            nn.functional.cross_entropy(model(x, True), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    steps(model, optimizer, 3)
    state = generator.get_state()
    if RANK == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    steps(model, optimizer, 3)
    straight = _numbers(model)

    again = Mixed()
    other = torch.optim.Adam(again.parameters(), lr=1e-2)
    if RANK == 0:
        saved = torch.load(path, weights_only=True)
        again.load_state_dict(saved["model"])
        other.load_state_dict(saved["optimizer"])
    again, other = hk.distribute(again, other)
    generator.set_state(state)
    steps(again, other, 3)
    return [keys == list(Mixed().state_dict()), straight == _numbers(again)]


def poison():
    """Rank 1 has a NaN in its loss, twice."""
    model, _ = _start("hocket")
    generator = torch.Generator().manual_seed(100 + RANK)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            x, y = _batch(generator)
            loss = nn.functional.cross_entropy(model(x), y)
            (loss * float("nan") if RANK == 1 and step > 0 else loss).backward()
            model.zero_grad()
    return [str(each.message) for each in caught]


def hold_the_gil():
    """Holds the GIL in C for half a second from the launch on; when did the all-reduce end?"""
    from hocket import _native
    from hocket.artefacts.plan import AllReduce
    from hocket.job.rendezvous import join
    from hocket.planning.compile import all_reduce_program

    with join() as job:
        # A trace tells when native threads were done, whatever Python did meanwhile.
        engine = job.engine(trace=os.environ.get("TRACE"))
        memory = engine.allocate(4_000_000)
        program = all_reduce_program(
            world=job.world,
            elements=1_000_000,
            dtype="f32",
            op="sum",
            scale=1.0,
            route=AllReduce(algorithm="ring"),
        )
        number = engine.load(program, {0: (memory, 0)}, priority=0, label="held")
        job.store.gather("go", job.rank, job.world, None, 10)
        holding = ctypes.PyDLL(None)
        engine.launch(number)
        began_ns = _native.now_ns()
        holding.usleep(500_000)
        held_until_ns = _native.now_ns()
        engine.wait(number, 10)
        waited_ns = _native.now_ns() - held_until_ns
        engine.close()
    return [began_ns, held_until_ns, waited_ns]


def sleepy():
    """Rank 0 is late for a step by longer than the others wait."""
    model, _ = _start("hocket")
    generator = torch.Generator().manual_seed(100 + RANK)
    x, y = _batch(generator)
    loss = nn.functional.cross_entropy(model(x), y)
    if RANK == 0:
        time.sleep(3)
    loss.backward()

"""Scripts of ranks with models on this machine's accelerator."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

import hocket.torch as hk
from hocket.errors import PeerError
from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy
from hocket.training.memory import device
from tests.torch import hostile

STEPS = 50
WAYS = ("convolutions", "transformer", "half", "scaler", "clipped", "unused", "joined", "library")
"""Models and ways of training."""
RANK, WORLD = int(os.environ.get("HOCKET_RANK", "0")), int(os.environ.get("HOCKET_WORLD", "1"))
DEVICE = torch.device("cpu")
if torch.accelerator.is_available():
    DEVICE = torch.accelerator.current_accelerator()


class Library(Policy):
    """All-reduces by Gloo, of what has come down from the device."""

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        cx.all_reduce(buffer, op="mean", library="gloo")


class Transformer(torch.nn.Module):
    """Bytes in, bytes out; embedding and head are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 64)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(64, 256, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(x))).flatten(0, 1)


class Unused(torch.nn.Module):
    """Layers that only some steps use, on all ranks alike."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        for at, layer in enumerate(self.layers):
            if at != self.calls % 3:
                x = layer(x).tanh()
        return x


def _convolutions() -> torch.nn.Module:
    def block(before: int, after: int) -> list[torch.nn.Module]:
        # A bias before a normalisation has no gradient but rounding errors, which Adam makes as large as any.
        conv = torch.nn.Conv2d(before, after, 3, padding=1, bias=False)
        return [conv, torch.nn.BatchNorm2d(after), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]

    layers = [*block(3, 16), *block(16, 32), torch.nn.Flatten(), torch.nn.Linear(32 * 64, 32)]
    # Four ranks add in another order than DDP, and Adam makes 1.7e-5 of f32's rounding in 50 steps.
    return torch.nn.Sequential(*layers).double()


def _batch(name: str, step: int, where: torch.device = DEVICE) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * step + RANK)
    if name == "transformer":
        text = torch.randint(256, (4, 17), generator=draw)
        return text[:, :-1].to(where), text[:, 1:].reshape(-1).to(where)
    if name == "convolutions":
        x = torch.randn((8, 3, 32, 32), generator=draw, dtype=torch.float64)
    else:
        x = torch.randn((8, 32), generator=draw)
    return x.to(where), torch.randint(32, (8,), generator=draw).to(where)


def _model(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(32, 300), torch.nn.ReLU(), torch.nn.Linear(300, 32))
    made: dict[str, Callable[[], torch.nn.Module]] = {
        "convolutions": _convolutions,
        # Biases of keys have no gradient but rounding errors, of which f32 has enough for Adam.
        "transformer": lambda: Transformer().double(),
        "unused": Unused,
    }
    return made.get(name, lambda: plain)().to(DEVICE)


def _train(name: str, model: Any, own: torch.nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    """Train as a script does that knows nothing of what moves its gradients, for `count` steps."""
    steps = count - 7 * RANK if name == "joined" else count
    where = next(own.parameters()).device
    scaler = torch.amp.GradScaler(where.type, enabled=name == "scaler", init_scale=256.0)
    for step in range(steps):
        for micro in range(2):
            # Inside of `join`, each step is one backward.
            if not micro and name == "joined":
                continue
            with nullcontext() if micro else model.no_sync():
                x, y = _batch(name, 2 * step + micro, where)
                half = torch.autocast(where.type, torch.bfloat16, enabled=name == "half")
                with half:
                    loss = torch.nn.functional.cross_entropy(model(x), y)
                scaler.scale(loss).backward()
        if name == "clipped":
            torch.nn.utils.clip_grad_norm_(own.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def differences(name: str, where: torch.device = DEVICE, steps: int = STEPS) -> float:
    """Largest difference between what Hocket has trained on a device and DistributedDataParallel on Gloo."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    if not dist.is_initialized():
        address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
        dist.init_process_group("gloo", init_method=address, rank=RANK, world_size=WORLD)
    model = _model(name)
    theirs = copy.deepcopy(model)
    ddp = torch.nn.parallel.DistributedDataParallel(theirs, find_unused_parameters=name == "unused")
    joined = name == "joined"
    with ddp.join() if joined else nullcontext():
        _train(name, ddp, theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-3), steps)
    other = [each.detach() for each in theirs.parameters()]
    policy = Library() if name == "library" else None
    model = model.to(where)
    model, optimizer = hk.distribute(model, torch.optim.AdamW(model.parameters(), lr=1e-3), policy=policy)
    with hk.join(model) if joined else nullcontext():
        _train(name, model, model, optimizer, steps)
    ours = [each.detach().to(DEVICE) for each in model.parameters()]
    return max(float((one - two).abs().max()) for one, two in zip(ours, other, strict=True))


def differences_on_a_hostile_device(name: str) -> float:
    """Differences on the tests' own device."""
    hostile.loaded(RANK)
    # Parameters that two layers share stay shared on their way to a device of an extension only so.
    torch.__future__.set_swap_module_params_on_conversion(True)
    device.PIECE_BYTES = 4096
    return differences(name, torch.device(hostile.NAME), 10)


def survives() -> tuple[str, bool]:
    """Error of a rank when rank 1 is killed in a step, and whether it can use the device then."""
    model = _model("plain")
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    try:
        for step in range(STEPS):
            x, y = _batch("plain", step)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            if step == STEPS // 2 and RANK == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    except PeerError as error:
        return str(error), float(torch.ones(3, device=DEVICE).sum()) == 3.0
    return "nothing", False

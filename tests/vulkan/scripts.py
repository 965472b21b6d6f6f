"""Scripts of ranks with models on Mesa's lavapipe: a device of somebody else's, without events and without pinned memory."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torchvulkan  # noqa: F401  (registers the device, before the first backward)

import hocket.torch as hk
from hocket.errors import PeerError

STEPS, BATCH = 50, 8
WORLD_FOUNDED = 3
"""Ranks that an elastic job begins with."""
RANK, WORLD = int(os.environ.get("HOCKET_RANK", "0")), int(os.environ.get("HOCKET_WORLD", "1"))


class Attention(torch.nn.Module):
    """Bytes in, bytes out; embedding and head are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.mix = torch.nn.ModuleList(torch.nn.Linear(32, 32, bias=False) for _ in range(4))
        self.head = torch.nn.Linear(32, 256, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embedding(x))
        q, k, v = (mix(x) for mix in self.mix[:3])
        weights = torch.softmax(q @ k.transpose(1, 2) / 32**0.5, dim=-1)
        return self.head(x + self.mix[3](weights @ v)).flatten(0, 1)


def _mlp() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


def _convolutions() -> torch.nn.Module:
    def block(before: int, after: int) -> list[torch.nn.Module]:
        return [
            torch.nn.Conv2d(before, after, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(after),
            torch.nn.ReLU(),
        ]

    return torch.nn.Sequential(*block(1, 4), *block(4, 8), torch.nn.Flatten(), torch.nn.Linear(8 * 64, 10))


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "mlp": _mlp,
    "convolutions": _convolutions,
    "transformer": Attention,
}


def batch(kind: str, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and classes, on the host."""
    if kind == "transformer":
        return tuple(torch.randint(0, 256, (BATCH, 16), generator=generator) for _ in range(2))
    shape = (BATCH, 64) if kind == "mlp" else (BATCH, 1, 8, 8)
    return torch.randn(shape, generator=generator), torch.randint(0, 10, (BATCH,), generator=generator)


def fit(kind: str, device: str, ends_at: int | None = None) -> torch.nn.Module:
    """Train; `ends_at`: the step at which the last rank kills itself."""
    torch.manual_seed(0)
    network = MODELS[kind]().to(device)
    network, optimizer = hk.distribute(
        network, torch.optim.AdamW(network.parameters(), lr=1e-3, foreach=False)
    )
    generator = torch.Generator().manual_seed(RANK)
    loss = torch.nn.CrossEntropyLoss()
    for step in range(STEPS):
        if step == ends_at and RANK == WORLD - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = batch(kind, generator)
        optimizer.zero_grad()
        loss(network(x.to(device)), y.flatten().to(device)).backward()
        optimizer.step()
    return network


def trained(kind: str, device: str) -> list[float]:
    """Return all parameters and buffers as they are after training."""
    network = fit(kind, device)
    return [
        value for each in network.state_dict().values() for value in each.cpu().double().flatten().tolist()
    ]


def survives(device: str) -> tuple[str, bool]:
    """Return what is said of a rank that was killed, and whether the device works after that."""
    try:
        fit("mlp", device, ends_at=5)
    except PeerError as error:
        ones = torch.ones(8, 8, device=device)
        return str(error), bool((ones @ ones).sum().cpu() == 512)
    return "", False


def goes_on(directory: str) -> None:
    """Train as a member of a job in which the last rank is killed and another joins; note how it ended."""
    founds = "HOCKET_RANK" in os.environ
    torch.manual_seed(0)
    network = _mlp().to("vulkan")
    network, optimizer = hk.distribute(
        network, torch.optim.AdamW(network.parameters(), lr=1e-3, foreach=False)
    )
    loss, steps = torch.nn.CrossEntropyLoss(), 0
    for _ in hk.epochs(network, 8):
        for samples in hk.batches(network, range(96), 4):
            if founds and RANK == WORLD - 1 and steps == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            if steps >= 5 and hk.world(network) < WORLD_FOUNDED:
                # Whoever joins loads PyTorch first.
                time.sleep(0.5)
            x, y = batch("mlp", torch.Generator().manual_seed(int(samples[0])))
            optimizer.zero_grad()
            loss(network(x.to("vulkan")), y.to("vulkan")).backward()
            optimizer.step()
            steps += 1
    values = [value for each in network.state_dict().values() for value in each.cpu().flatten().tolist()]
    name = os.environ["HOCKET_RANK" if founds else "HOCKET_MEMBER"]
    note = {"world": hk.world(network), "founds": founds, "values": values}
    Path(directory, f"{name}.json").write_text(json.dumps(note))


if __name__ == "__main__":
    torch.set_num_threads(1)
    goes_on(sys.argv[1])

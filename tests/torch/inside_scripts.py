"""Ranks of `test_device_libraries.py`: the library of the tests' device inside hosts, Hocket between them."""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar
from unittest import mock

import torch

import hocket.torch as hk
from hocket.errors import Error
from hocket.libraries.torch_distributed import TorchDistributed
from hocket.policies import LibraryInside
from hocket.torch.devices import Lent
from hocket.training.memory import device as memory
from tests.torch import hostile
from tests.torch.device_scripts import RANK, WORLD, device
from tests.torch.device_training_scripts import Network
from tests.torch.failing_device_scripts import works
from tests.torch.hostile import library

STEPS = 4
PLANTED: dict[str, Any] = {
    "a shard is read before the library has made it": (TorchDistributed, "_came", lambda *_: True),
    "the library reads before gradients and shards are there": (Lent, "take", lambda lent: lent._part),
}
"""Orders that are not kept: each is what takes the place of an attribute."""


class Inside(LibraryInside):
    """In two buckets."""

    parameters: ClassVar = {"fusion_bytes": 18_000, "first_fusion_bytes": 18_000}


def begin(hosts: str) -> None:
    """`hosts`: this and all other ranks' host, a letter each."""
    os.environ["HOCKET_HOST"] = hosts[RANK]
    hostile.loaded(RANK)
    library.register()
    torch.accelerator.set_device_index(device())
    memory.PIECE_BYTES = 600


def trained(where: torch.device, steps: int = STEPS) -> torch.Tensor:
    """Parameters of a model that the policy has trained."""
    model = Network().double().to(where)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer = hk.distribute(model, optimizer, policy=Inside())
    for step in range(steps):
        draw = torch.Generator().manual_seed(100 * step + RANK)
        optimizer.zero_grad()
        batch = torch.randn(6, 13, generator=draw, dtype=torch.float64)
        model(batch.to(where)).square().mean().backward()
        optimizer.step()
    return torch.cat([each.detach().cpu().flatten() for each in model.parameters()])


def differences(hosts: str) -> dict[str, float]:
    """By mood of the device, the largest difference to what is trained on the CPU, and how often its library was called."""
    begin(hosts)
    wanted = trained(torch.device("cpu"))
    found = {}
    for mood in hostile.MOODS:
        hostile.loaded(RANK, mood)
        found[mood] = float((trained(device()) - wanted).abs().max())
    return found | {"calls": len(library.calls)}


def planted(hosts: str, name: str) -> float:
    """Difference to the CPU when an order is not kept."""
    begin(hosts)
    wanted = trained(torch.device("cpu"))
    hostile.loaded(RANK, "last")
    with mock.patch.object(*PLANTED[name]):
        return float((trained(device()) - wanted).abs().nan_to_num(1.0).max())


def ending(hosts: str, how: str, at: str) -> list[Any]:
    """This rank's error when the last one fails or dies in the library's call with that number, and whether the device works on."""
    begin(hosts)

    def act(number: int) -> None:
        if number == int(at) and RANK == WORLD - 1:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(library.ERROR)

    library.before_call = act
    text = ""
    try:
        trained(device(), steps=20)
    except (RuntimeError, Error) as error:
        text = str(error)
    return [text, works()]

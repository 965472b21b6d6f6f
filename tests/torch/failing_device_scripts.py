"""Ranks of `test_device_errors.py`: calls of a device that fail on the last rank, one after the other."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hocket.torch as hk
from hocket.errors import Error
from hocket.policy.policy import Policy
from hocket.torch.backend import staging
from hocket.torch.devices import Streams
from tests.torch import hostile
from tests.torch.device_scripts import RANK, WORLD, device, group
from tests.torch.device_training_scripts import Network

EVENTS = ("record", "query", "synchronize")
CALLS = ("share", "made", "down", "up", "received", *EVENTS)
"""Methods of the queue of copies, and of events. `synchronize` is for training alone."""
ERROR = "the device has failed"


class Failing:
    """A method that fails when it is called for the `at`th time."""

    def __init__(self, method: Callable[..., Any], at: int) -> None:
        self.method, self.left = method, at

    def __get__(self, one: Any, _kind: type) -> Callable[..., Any]:
        return functools.partial(self, one)

    def __call__(self, *given: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError(ERROR)
        return self.method(*given)


@contextmanager
def failing(call: str, at: int) -> Iterator[None]:
    """That call of the device fails on the last rank, the `at`th time."""
    kind: Any = torch.Event if call in EVENTS else Streams
    instead = Failing(getattr(kind, call), at if RANK == WORLD - 1 else 0)
    if call in EVENTS:
        # PyTorch's own class takes no other methods.
        patched = mock.patch.object(hostile.Module, "Event", type("Event", (torch.Event,), {call: instead}))
    else:
        patched = mock.patch.object(Streams, call, instead)
    with patched:
        yield
    instead.left = 0


def works() -> bool:
    """Return whether the device goes on."""
    return float(torch.ones(3, device=device()).sum()) == 3


def collectives(store: str) -> list[list[Any]]:
    """Call by call of the device: which one failed, the error, how much is pinned after that, and whether the device works."""
    hostile.loaded(RANK)
    pinned: set[int] = set()

    def pin(address: int, _size: int) -> Callable[[], None]:
        pinned.add(address)
        return lambda: pinned.remove(address)

    found = []
    for call in CALLS:
        # Each copy has an event, which is recorded and asked.
        for at in itertools.count(1, 3 if call in EVENTS else 1):
            text = ""
            try:
                # Events are asked until the group has ended.
                with (
                    mock.patch.object(staging, "pinning", return_value=pin),
                    failing(call, at),
                    group(f"{store} {call} {at}", hosts=WORLD, timeout_s=900),
                ):
                    exchange()
            except RuntimeError as error:
                text = str(error)
            if not text:
                break
            found.append([f"{call} {at}", text, len(pinned), works()])
    return found


def exchange() -> None:
    """On the group's thread, in the calling one, as a message, and once without the device, for whoever has not noticed anything
    yet."""
    one = torch.ones(300, device=device())
    dist.all_reduce(one, async_op=True).wait()
    dist.broadcast(one, 0)
    sent = dist.isend(one, (RANK + 1) % WORLD)
    dist.recv(torch.zeros_like(one), (RANK - 1) % WORLD)
    sent.wait()
    dist.barrier()


def training(_store: str, call: str, at: str) -> list[Any]:
    """The error of a rank, and whether the device works then."""
    hostile.loaded(RANK)
    torch.accelerator.set_device_index(device())
    model = Network().to(device())
    with failing(call, int(at)):
        return ended(lambda: hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1)))


def hooked(store: str, call: str, at: str) -> list[Any]:
    """Training that a device fails, under DDP with our hook."""
    hostile.loaded(RANK)
    torch.accelerator.set_device_index(device())
    with group(store, timeout_s=900):
        model = DistributedDataParallel(Network().to(device()), bucket_cap_mb=0.005)
        model.register_comm_hook(None, hk.ddp_hook(Policy()))
        with failing(call, int(at)):
            return ended(lambda: (model, torch.optim.SGD(model.parameters(), lr=0.1)))


def ended(begin: Callable[[], tuple[torch.nn.Module, torch.optim.Optimizer]]) -> list[Any]:
    """How training ends: the error, and whether the device works then."""
    text = ""
    try:
        model, optimizer = begin()
        for step in range(20):
            draw = torch.Generator().manual_seed(100 * step + RANK)
            optimizer.zero_grad()
            model(torch.randn(6, 13, generator=draw).to(device())).square().mean().backward()
            optimizer.step()
    except (RuntimeError, Error) as error:
        text = str(error)
    return [text, works()]

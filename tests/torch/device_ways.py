"""Ranks of `test_device_ways.py`: scripts of other tests, all of whose tensors are on the tests' device."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

from benches.ddp.rank import rows_of
from hocket.training.memory import device as memory
from tests.torch import hostile
from tests.torch.device_scripts import RANK, WORLD, device


def begin() -> None:
    hostile.loaded(RANK)
    torch.accelerator.set_device_index(device())
    memory.PIECE_BYTES = 64


def on(where: str, function: str, *arguments: str) -> Any:
    """Return what a script returns whose tensors are there, unless it says where."""
    begin()
    module, _, name = function.partition(":")
    script = getattr(importlib.import_module(module), name)
    torch.set_default_device("cpu" if where == "cpu" else device())
    try:
        return script(*arguments)
    finally:
        torch.set_default_device(None)


def as_ddp(*names: str) -> list[dict[str, Any]]:
    """Rows of these ways of `python -m benches ddp`."""
    begin()
    memory.PIECE_BYTES = 1 << 16
    if not torch.distributed.is_initialized():
        address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
        torch.distributed.init_process_group("gloo", init_method=address, rank=RANK, world_size=WORLD)
    return rows_of(names, RANK, WORLD, device())

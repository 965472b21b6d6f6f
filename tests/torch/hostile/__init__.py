"""A device that PyTorch takes for one, on which every order that streams and events leave open goes wrong.

`device.cpp` is built once and registered as PrivateUse1, with the name `hostile`. Its memory is of no use to the host: touching it
ends the process. Every operator, copy and fill is work of a stream that runs late, in an order that a seed draws; until a copy has
run, its destination holds no numbers; memory that is free is overwritten and given to the next who asks.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import cpp_extension

from tests.torch.hostile import norms

NAME = "hostile"
HERE = Path(__file__).parent
PARTS = ("Stream", "Event", "current_stream", "stream")
MOODS = {"last": (0, 0), "first": (100, 100), "any": (40, 40)}
"""How work comes that nobody waits for: as late as it may, as soon as it may, or as the seed draws: percents of `behave`."""


class Module(ModuleType):
    """`torch.hostile`: what `torch.cuda` is to CUDA."""

    Stream, Event = torch.Stream, torch.Event

    def __init__(self, native: Any) -> None:
        super().__init__(f"torch.{NAME}")
        self.native = native

    def current_stream(self, device: Any = None) -> torch.Stream:
        return torch.accelerator.current_stream(device)

    def stream(self, stream: torch.Stream) -> torch.Stream:
        return stream

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before = self.current_device()
        self.set_device(device)
        try:
            yield
        finally:
            self.set_device(before)

    def set_device(self, device: Any) -> None:
        torch.accelerator.set_device_index(device)

    def current_device(self) -> int:
        return torch.accelerator.current_device_index()

    def device_count(self) -> int:
        return int(self.native.DEVICES)

    def synchronize(self, device: Any = None) -> None:
        torch.accelerator.synchronize(device)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Do nothing: kernels draw from the processor's generator."""

    def manual_seed(self, seed: int) -> None:
        """Do nothing, for the same reason."""

    def get_rng_state(self, _device: Any = NAME) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, _device: Any = NAME) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


def loaded(seed: int = 0, mood: str = "any", *, streams: bool = True) -> Module:
    """Return `torch.hostile`, of this process. `streams` False: a device of one queue, as Apple's is to Python."""
    module = getattr(torch, NAME, None)
    if module is None:
        module = Module(build())
        torch.utils.rename_privateuse1_backend(NAME)
        torch._register_device_module(NAME, module)
        torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
        norms.register()
    module.native.behave(seed, *MOODS[mood], not streams)
    for part in PARTS:
        if not streams and hasattr(Module, part):
            delattr(Module, part)
    return module


def forget(accelerator: Any, order: str) -> None:
    """Let copies of a model's gradients do without one of their orders."""
    if order == "down":
        begin = accelerator.down
        accelerator.down = lambda host: begin(host) and (lambda: None)
    elif order == "received":
        # The thread waits, too, not the queue alone.
        accelerator.received = lambda _memory: None
    else:
        setattr(accelerator._queue, order, lambda _: None)


def build() -> Any:
    """Return the extension: built where earlier tests have left it, unless its text or PyTorch has changed since. Each place of the
    sources has its own: where they share one, each builds anew what the other one has built."""
    sources = [HERE / each for each in ("device.cpp", "pinned.h", "queues.h")]
    text = (
        b"".join(each.read_bytes() for each in sources) + f"{torch.__version__} {sys.version} {HERE}".encode()
    )
    name = f"hocket-hostile-{os.getuid()}-{hashlib.sha256(text).hexdigest()[:16]}"
    place = Path(tempfile.gettempdir()) / name
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid():
        raise PermissionError(f"{place} is another user's")
    # PyTorch's lock lets one process build, while others wait.
    return cpp_extension.load(
        "hostile_device",
        [str(sources[0])],
        build_directory=str(place),
        extra_cflags=["-O1", "-g0"],
        with_cuda=False,
    )

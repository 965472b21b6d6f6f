"""Libraries that a collective may name; loads none of them.

An unknown or unavailable library is refused where the policy uses it, so a verified program can run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from hocket.policy import sources

Library = Literal["gloo", "nccl", "mpi", "device"]
ON_DEVICE = "device"
"""Name for whatever PyTorch has for the device of the gradients, whose memory it works on."""
KNOWN: tuple[str, ...] = get_args(Library)
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of the kernel's drivers for NVIDIA and AMD, and of Windows' for Linux: asking a framework would load
it."""


def check(name: str, algorithm: str) -> None:
    """Raise PolicyError, with the user's line, unless the library `name` can execute a collective here."""
    if name not in KNOWN:
        raise sources.refusal(f"there is no library `{name}`\nhint: {', '.join(KNOWN)}")
    if name == "nccl" and not has_gpu():
        raise sources.refusal(
            "library `nccl` needs a GPU, and this machine has none\nhint: gloo, mpi or the native wire"
        )
    if algorithm != "auto":
        raise sources.refusal(
            f"library `{name}` chooses its algorithms itself, it cannot be told `{algorithm}`\n"
            "hint: leave out one of `library` and `algorithm`"
        )


def has_gpu() -> bool:
    """Return whether a GPU driver is present."""
    return any(Path(each).exists() for each in GPU_FILES)

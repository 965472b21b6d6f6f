"""Which libraries a collective may name; loads none of them.

A name that nobody serves, or that this machine cannot, is refused where the policy says it: what is proven can run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from hocket.policy import sources

Library = Literal["gloo", "nccl", "mpi"]
KNOWN: tuple[str, ...] = get_args(Library)
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Of the kernel's drivers for NVIDIA and AMD, and of Windows' for Linux: asking a framework would load it."""


def check(name: str, algorithm: str) -> None:
    """PolicyError, with the user's line, unless a collective can be left to the library `name` here."""
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
    """Whether a driver of one is there."""
    return any(Path(each).exists() for each in GPU_FILES)

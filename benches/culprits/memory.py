"""A process that runs out of memory, as on a host or in a container without more: the kernel kills it."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from pathlib import Path

PARENTS = {
    Path("/sys/fs/cgroup/memory"): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    Path("/sys/fs/cgroup"): ("memory.max", "memory.swap.max"),
}
"""Folders of control groups, versions 1 and 2: the file of the limit, and that of memory and swap, or swap alone."""
LIMIT_BYTES, PIECE_BYTES = 1 << 26, 1 << 20
MORE_BYTES = 1 << 28
"""Address space that a process may use beyond its current one, if groups cannot be made."""


def group_of(process: int) -> str:
    return f"hocket-culprit-{process}"


def remove(process: int) -> None:
    """Remove the group of a process that has ended, if it had one."""
    for parent in PARENTS:
        with contextlib.suppress(OSError):
            (parent / group_of(process)).rmdir()


def limited() -> bool:
    """Move this process into a group with little memory, and return whether that was possible."""
    for parent, (limit, swap) in PARENTS.items():
        group = parent / group_of(os.getpid())
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT_BYTES))
            with contextlib.suppress(OSError):  # without swap, there is no such file
                (group / swap).write_text("0" if swap == "memory.swap.max" else str(LIMIT_BYTES))
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        return True
    return False


def run_out() -> None:
    """Allocate until the kernel kills this process; if groups cannot be made, until no memory is left, and then by a helper."""
    if not limited():
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES, resource.RLIM_INFINITY))
    kept = []
    with contextlib.suppress(MemoryError):
        while True:
            kept.append(bytearray(os.urandom(1)) * PIECE_BYTES)
    kept.clear()
    kill_from_outside()
    time.sleep(900)


def kill_from_outside() -> None:
    """Let another process kill this one soon."""
    subprocess.Popen(["kill", "-9", str(os.getpid())])

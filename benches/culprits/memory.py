"""A process that runs out of memory, as on a host or in a container that has no more: the kernel kills it."""

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
"""Where groups are made, of the first version and the second: the file of the limit, and that of memory and swap, or swap alone."""
LIMIT_BYTES, PIECE_BYTES = 1 << 26, 1 << 20
MORE_BYTES = 1 << 28
"""Address space that a process may use besides what it has, where groups cannot be made."""


def group_of(process: int) -> str:
    """The name of the group that such a process makes."""
    return f"hocket-culprit-{process}"


def remove(process: int) -> None:
    """The group of one that has ended, if it had one."""
    for parent in PARENTS:
        with contextlib.suppress(OSError):
            (parent / group_of(process)).rmdir()


def limited() -> bool:
    """This process moves into a group with little memory. Whether it could."""
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
    """Use more and more, until the kernel ends it; where groups cannot be made, until nothing is left, and then by a helper."""
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
    """Another process kills this one, soon."""
    subprocess.Popen(["kill", "-9", str(os.getpid())])

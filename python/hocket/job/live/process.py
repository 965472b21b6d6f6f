"""Process of a rank, as others of its user on its machine see it: whether it is stopped, and its Python stack if it cannot answer.

A process that holds Python's lock in native code runs no Python, so that it reports nothing. Its signal handlers in C still run:
`Door` has one of `faulthandler`, which writes the stack to a file in memory. Whoever sends the signal first makes sure that the
number is still that process's: it has the start time, and is on the same machine, in the same PID namespace.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import time
from pathlib import Path

from msgspec import Struct

SIGNAL = signal.SIGRTMIN + 9
"""Signal that nobody else is known to use. A program that has a handler for it keeps that one."""
ANSWER_S = 2.0
SETTLED_S = 0.1
"""Time without further output after which a stack is whole."""
LOOK_S = 0.02
STACK_BYTES_MAX = 1 << 14
STARTED = 19
"""Index of a process's start time in its `stat`, after the command."""


class Whereabouts(Struct, frozen=True, kw_only=True):
    """Process, as it describes itself. `machine`: boot and PID namespace. `started`: in ticks since the boot. `file`: descriptor to
    which it writes its stack on SIGNAL; None: it does not."""

    machine: str
    number: int
    started: int
    file: int | None


class Door:
    """Handler by which others get the stack of this process, until `close`. One process has one, however many it opens."""

    _lock = threading.Lock()
    _open = 0
    _file: int | None = None

    def __init__(self) -> None:
        """Open, unless another handler is there."""
        self._closed = False
        with Door._lock:
            Door._open += 1
            if Door._file is None and not is_handled(SIGNAL):
                file = os.memfd_create("hocket-stack")
                faulthandler.register(SIGNAL, file=file, all_threads=False)
                Door._file = file
            self.whereabouts = Whereabouts(
                machine=machine(),
                number=os.getpid(),
                started=_started(os.getpid()) or 0,
                file=Door._file,
            )

    def close(self) -> None:
        """Remove the handler if nobody else of this process needs it; idempotent."""
        with Door._lock:
            if self._closed:
                return
            self._closed = True
            Door._open -= 1
            if Door._open == 0 and Door._file is not None:
                faulthandler.unregister(SIGNAL)
                os.close(Door._file)
                Door._file = None


def machine() -> str:
    """Return what processes have in common whose numbers mean the same processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} pid {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def is_here(process: Whereabouts) -> bool:
    """Return whether the process is on this machine, and lives."""
    return (
        bool(process.machine) and process.machine == machine() and _started(process.number) == process.started
    )


def is_stopped(process: Whereabouts) -> bool:
    """Return whether the process, which `is_here`, is stopped by a signal or a debugger."""
    return _stat(process.number)[:1] in (["T"], ["t"])


def native_stack(process: Whereabouts) -> str | None:
    """Return the Python stack of the main thread, innermost call first, of a process that `is_here`; None: it does not come."""
    if process.file is None or not is_here(process):
        return None
    path = Path(f"/proc/{process.number}/fd/{process.file}")
    with contextlib.suppress(OSError):
        before = path.stat().st_size
        if not is_handled(SIGNAL, process.number):
            # It has left its job since, and would end.
            return None
        os.kill(process.number, SIGNAL)
        now_s = time.monotonic()
        until_s, size, changed_s = now_s + ANSWER_S, before, now_s
        while now_s < until_s and (size == before or now_s - changed_s < SETTLED_S):
            time.sleep(LOOK_S)
            now_s = time.monotonic()
            if (found := path.stat().st_size) != size:
                size, changed_s = found, now_s
        if size > before:
            with path.open("rb") as file:
                file.seek(before)
                return file.read(STACK_BYTES_MAX).decode(errors="replace")
    return None


def is_handled(number: int, process: int | str = "self") -> bool:
    """Return whether a process ignores the signal or has a handler for it, in Python or in C. Raises OSError: it has ended."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    sets = [line.split()[1] for line in lines if line.startswith(("SigIgn:", "SigCgt:"))]
    return any(int(each, 16) >> (number - 1) & 1 for each in sets)


def _started(number: int) -> int | None:
    fields = _stat(number)
    return int(fields[STARTED]) if len(fields) > STARTED else None


def _stat(number: int) -> list[str]:
    """Return the fields of a process's `stat` after its command, which may contain anything; none if it has ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []

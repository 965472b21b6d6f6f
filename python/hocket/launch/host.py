"""This machine as ranks compare it: its name, and what tells it from others even when names are equal."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where a process runs.

    `name` is the one in cluster files. `place` is equal for processes that reach each other over loopback:
    same boot, same network namespace. `clock` is equal for processes whose monotonic clocks are one.
    """

    name: str
    place: str
    clock: str

    @property
    def identity(self) -> str:
        """What ranks share that use shared memory together: two namespaces of one machine are two hosts."""
        return f"{self.name} {self.place}"

    @classmethod
    def here(cls, name: str | None = None) -> Host:
        """This process's host; `name` instead of the machine's own."""
        machine = socket.gethostname()
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = machine
        return cls(
            name=name or machine,
            place=f"{boot} net {_namespace('net')}",
            clock=f"{boot} time {_namespace('time')}",
        )


def _namespace(kind: str) -> int:
    try:
        return Path(f"/proc/self/ns/{kind}").stat().st_ino
    except OSError:  # kernels without time namespaces have one for all
        return 0

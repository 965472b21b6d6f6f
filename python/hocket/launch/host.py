"""This machine as ranks compare it: what tells it from others, and the name that people know it by.

Hosts are distinguished by boot and network namespace, never by the machine's own name: containers and cloud images often share
one. A name that the user gives (`HOCKET_HOST`, `hocket run --hosts`) does tell hosts apart, so that one machine can play several.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where a process runs.

    `name` is for people, and the one in cluster files. `place` is equal for processes that reach each other over loopback:
    same boot, same network namespace. `identity` is equal for processes of one host, which share memory: same place, and no
    different names given by the user. `clock` is equal for processes whose monotonic clocks are one.
    """

    name: str
    place: str
    identity: str
    clock: str

    @classmethod
    def here(cls, name: str | None = None) -> Host:
        """This process's host; `name`: as the user calls it, instead of the machine's own name."""
        machine = socket.gethostname()
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = machine
        place = f"{boot} net {_namespace('net')}"
        return cls(
            name=name or machine,
            place=place,
            identity=f"{place} called {name}" if name else place,
            clock=f"{boot} time {_namespace('time')}",
        )


def job_names(names: Sequence[str], identities: Sequence[str]) -> tuple[str, ...]:
    """By rank, a name of its host that no other host of the job has: a name's second host is `NAME (2)`.

    Everything that asks whether two ranks share a host compares these, in Python and in Rust.

    Args:
        names: what each rank calls its host.
        identities: `Host.identity` of each rank.

    >>> job_names(["node3", "node3", "node3"], ["boot a", "boot b", "boot a"])
    ('node3', 'node3 (2)', 'node3')
    """
    known: dict[str, str] = {}
    for name, identity in zip(names, identities, strict=True):
        if identity in known:
            continue
        unique, number = name, 1
        while unique in known.values():
            number += 1
            unique = f"{name} ({number})"
        known[identity] = unique
    return tuple(known[identity] for identity in identities)


def _namespace(kind: str) -> int:
    try:
        return Path(f"/proc/self/ns/{kind}").stat().st_ino
    except OSError:  # kernels without time namespaces have one for all
        return 0

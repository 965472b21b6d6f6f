"""Identity of this machine, which ranks compare, and its name for people.

Hosts are distinguished by boot and network namespace, never by the machine's own name: containers and cloud images often share one.
A name from the user (`HOCKET_HOST`, `hocket run --hosts`) does distinguish hosts, so that one machine can play several.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Host:
    """Host of a process.

    `name` is for people and for cluster files. `place` is equal for processes that reach each other over loopback: same boot, same
    network namespace. `identity` is equal for processes of one host, which share memory: same place, and no different names from
    the user. `clock` is equal for processes that share a monotonic clock.
    """

    name: str
    place: str
    identity: str
    clock: str

    @classmethod
    def here(cls, name: str | None = None) -> Host:
        """Host of this process; `name` replaces the machine's own name."""
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
    """Host names by rank, each unique in the job: the second host with a name becomes `NAME-2`, a name
    that cluster files and plans may have.

    All code that asks whether two ranks share a host compares these names, in Python and in Rust.

    Args:
        names: each rank's name for its host.
        identities: `Host.identity` of each rank.

    >>> job_names(["node3", "node3", "node3"], ["boot a", "boot b", "boot a"])
    ('node3', 'node3-2', 'node3')
    """
    known: dict[str, str] = {}
    for name, identity in zip(names, identities, strict=True):
        if identity in known:
            continue
        unique, number = name, 1
        while unique in known.values():
            number += 1
            unique = f"{name}-{number}"
        known[identity] = unique
    return tuple(known[identity] for identity in identities)


def _namespace(kind: str) -> int:
    try:
        return Path(f"/proc/self/ns/{kind}").stat().st_ino
    except OSError:  # kernels without time namespaces have one clock for all processes
        return 0

"""Ranks on other machines: how each is started over ssh, and where they find this machine's store."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hocket.errors import UsageError
from hocket.launch import address as addresses
from hocket.launch.processes import ProcessSpec

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"
"""The command that reaches a host; the host's name is appended."""

REACH_TIMEOUT_S = 15.0
"""More than `SSH` gives a connection."""

ASKED_AT_ONCE = 64


def processes_over(
    ssh: str, names: Sequence[str], argv: Sequence[str], interpreter: str
) -> list[ProcessSpec]:
    """`argv` once on each of the hosts, by rank, held by their `interpreter`; a thread count that was set here is set there."""
    reach = shlex.split(ssh)
    threads = {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    return [
        ProcessSpec(
            argv=argv,
            host=name,
            prefix=[*reach, name],
            remote=True,
            environment=threads,
            interpreter=interpreter,
        )
        for name in names
    ]


def reachable(ssh: str, names: Sequence[str], timeout_s: float = REACH_TIMEOUT_S) -> list[bool]:
    """By host: whether `ssh` runs a command there in time; all are asked at once."""

    def answers(name: str) -> bool:
        try:
            ran = subprocess.run(
                [*shlex.split(ssh), name, "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return ran.returncode == 0

    with ThreadPoolExecutor(min(len(names), ASKED_AT_ONCE)) as pool:
        return list(pool.map(answers, names))


def store_for(names: Sequence[str], given: str | None) -> str:
    """`HOST:PORT` of the store as the hosts reach it; port 0: any.

    Args:
        names: the hosts, as `user@host` or `host`.
        given: the user's choice; None: the address of this machine on the way to the first host that is another one.

    Raises:
        UsageError: no way to any of them is known.
    """
    address = given or _address_towards([name.rpartition("@")[2] for name in names])
    return addresses.join(address, 0) if ":" not in address or addresses.is_literal(address) else address


def _address_towards(machines: Sequence[str]) -> str:
    others = [machine for machine in machines if machine not in ("localhost", socket.gethostname())]
    if not others:
        return addresses.LOOPBACK
    found = next(filter(None, map(addresses.towards, others)), None)
    if found is None:
        raise UsageError(
            f"no address of this machine is known that `{others[0]}` could reach\nhint: give it with --store ADDRESS"
        )
    return found

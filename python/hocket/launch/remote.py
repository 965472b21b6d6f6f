"""Ranks on other machines: the ssh command that starts each, and this machine's store as they reach it."""

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
"""Longer than `SSH` allows a connection."""

ASKED_AT_ONCE = 64


def processes_over(
    ssh: str, names: Sequence[str], argv: Sequence[str], interpreter: str
) -> list[ProcessSpec]:
    """`argv` on each of the hosts, by rank, behind a leash run by `interpreter`. A thread count set here is also set there."""
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
    """By host: whether `ssh` runs a command there in time; all hosts are tried at once."""

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
        given: the user's choice; None: this machine's address on the route to the first host that is another one.

    Raises:
        UsageError: there is no route to any of them.
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

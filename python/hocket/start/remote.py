"""Ranks on other machines: the ssh command that starts each, and this machine's store as they reach it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hocket.errors import UsageError
from hocket.job.store import address as addresses
from hocket.start.processes import ProcessSpec

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"
"""Command that reaches a host; the host's name is appended."""

REACH_TIMEOUT_S = 15.0
"""Time limit for a test of a host; longer than `SSH` allows a connection."""

ASKED_AT_ONCE = 64


def processes_over(
    ssh: str, names: Sequence[str], argv: Sequence[str], interpreter: str
) -> list[ProcessSpec]:
    """Return specifications of `argv` on each host, by rank, behind a leash run by `interpreter`, with this process's thread
    count."""
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
    """Return, by host, whether `ssh` runs a command there in time; all hosts are tried at once."""

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


def store_for(names: Sequence[str], given: str | None, ssh: str) -> str:
    """Return `HOST:PORT` of the store as the hosts reach it; port 0: any.

    Args:
        names: the hosts, as `user@host`, `host`, or names that ssh's configuration gives to hosts.
        given: the user's choice; None: this machine's address on the route to the first host that is another one, and if others
            are only reached by the other family of addresses, that one, too.
        ssh: the command that reaches a host.

    Raises:
        UsageError: there is no route to any of them.
    """
    address = given or _address_towards(names, ssh)
    if ":" not in address or addresses.is_literal(address):
        address = addresses.join(address, 0)
    if addresses.split(address, variable="--store")[0] in addresses.UNSPECIFIED:
        raise UsageError(
            f"--store {given}: ranks cannot come to that address\n"
            "hint: give one by which they reach this machine, or leave --store out"
        )
    return address


def _address_towards(names: Sequence[str], ssh: str) -> str:
    here = ("localhost", socket.gethostname())
    others = [name for name in dict.fromkeys(names) if name.rpartition("@")[2] not in here]
    if not others:
        return addresses.LOOPBACK
    with ThreadPoolExecutor(min(len(others), ASKED_AT_ONCE)) as pool:
        found = [*filter(None, pool.map(lambda name: addresses.towards(machine_of(name, ssh)), others))]
    if not found:
        raise UsageError(
            f"no address of this machine is known that `{others[0]}` could reach\nhint: give it with --store ADDRESS, if the name "
            "of that host is right, and ssh knows a way to it"
        )
    # A name for this machine itself may resolve to loopback, which the others cannot reach.
    reached = [each for each in found if not addresses.is_loopback(each)] or found[:1]
    by_family = {addresses.family(each): each for each in reversed(reached)}
    return ",".join(sorted(by_family.values(), key=reached.index))


def machine_of(name: str, ssh: str) -> str:
    """Return the name or address of the machine that ssh connects to for `name`, which its configuration may map to another."""
    own = name.rpartition("@")[2]
    command = shlex.split(ssh)
    if not command or Path(command[0]).name != "ssh":
        return own
    try:
        ran = subprocess.run(
            [*command, "-G", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=REACH_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return own
    found = dict(line.partition(" ")[::2] for line in ran.stdout.splitlines())
    return found.get("hostname", own) if ran.returncode == 0 else own

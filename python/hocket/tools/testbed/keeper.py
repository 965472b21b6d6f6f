"""Keeper of a testbed between commands: a process of its own that holds the testbed, and a file with its state.

The file names the process; when the process is gone, so are the namespaces, and the file is stale. It is in the user's private
directory, since its content is executed: it has the commands that enter hosts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from hocket import typed
from hocket.artefacts import files, writing
from hocket.artefacts.cluster import Cluster, Directions
from hocket.artefacts.decoding import MALFORMED
from hocket.errors import Error, TestbedError
from hocket.job.private import directory
from hocket.tools.testbed.bed import Testbed
from hocket.tools.testbed.clusters import example_cluster

POLL_S = 0.05


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """Host of the testbed that is up; `command` runs what follows it there."""

    name: str
    rack: str
    address: str
    bandwidth_bit_per_s: Directions
    command: tuple[str, ...]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Process that holds the testbed, and the hosts."""

    pid: int
    hosts: tuple[HostState, ...]


def state_file() -> Path:
    """Return the state file of this user's testbed. UsageError: others could have written it."""
    return directory() / "testbed.json"


def state() -> State | None:
    """Return the state written by `up`, if its process lives; a stale file is removed. UsageError as `state_file`."""
    path = state_file()
    try:
        known = typed.of_json(path.read_bytes(), State)
        line = Path(f"/proc/{known.pid}/cmdline").read_bytes()
    except (OSError, *MALFORMED):
        path.unlink(missing_ok=True)
        return None
    if __name__.encode() not in line:
        path.unlink(missing_ok=True)
        return None
    return known


def start(cluster: str, timeout_s: float) -> None:
    """Start the keeper for a cluster file or a packaged name; TestbedError with its message when it fails."""
    if state() is not None:
        raise TestbedError("a testbed is up already\nhint: hocket testbed down")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, cluster],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            why = process.stderr.read().decode().strip() if process.stderr else ""
            raise TestbedError(why or "the testbed's process ended at once")
        if state() is not None:
            return
        time.sleep(POLL_S)
    process.kill()
    raise TestbedError(f"the testbed was not up within {timeout_s:g} s")


def stop(timeout_s: float) -> bool:
    """End the keeper; return whether there was one."""
    known = state()
    if known is None:
        return False
    os.kill(known.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + timeout_s
    while state() is not None:
        if time.monotonic() > deadline_s:
            raise TestbedError(f"process {known.pid} did not take the testbed down within {timeout_s:g} s")
        time.sleep(POLL_S)
    return True


def keep(cluster: Cluster) -> None:
    """Hold the testbed until a signal comes."""
    with Testbed(cluster) as bed:
        hosts = tuple(
            HostState(
                name=host.name,
                rack=host.rack,
                address=bed.address(host.name),
                bandwidth_bit_per_s=host.bandwidth_bit_per_s,
                command=tuple(bed.command(host.name)),
            )
            for host in cluster.hosts
        )
        path = state_file()
        writing.write(path, msgspec.json.encode(State(pid=os.getpid(), hosts=hosts)))
        try:
            signal.sigwait({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        finally:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    named = sys.argv[1]
    try:
        keep(files.read(Path(named), Cluster) if Path(named).exists() else example_cluster(named))
    except Error as error:
        sys.exit(str(error))

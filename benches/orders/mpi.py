"""Open MPI on the hosts of a testbed: `mpirun` on the first host starts its daemons on the others as over ssh.

Its "ssh" is a script that enters the host's namespaces, where each host also gets its own name, since Open MPI treats daemons with
one name as one machine and would use shared memory.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hocket.errors import PeerError
from hocket.tools.bench.collectives import mpirun
from hocket.tools.demo.emulation import Emulation

ALGORITHMS = {"recursive_doubling": 3, "ring": 4}
"""Values of `coll_tuned_allreduce_algorithm`."""
TIMEOUT_S = 60.0


def all_reduce_s(
    emulation: Emulation, hosts: Sequence[str], *, algorithm: str, size_bytes: int, calls: int, scratch: Path
) -> float:
    """Seconds per all-reduce of the slowest rank; rank `i` is on `hosts[i]`. Raises PeerError with what `mpirun` said."""
    ssh, out = scratch / "ssh", scratch / "times.json"
    ssh.write_text(_script(emulation))
    ssh.chmod(0o700)
    out.unlink(missing_ok=True)
    settings = {
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": "eth0",
        "coll": "^han,adapt,sm,xhc,acoll",
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_allreduce_algorithm": str(ALGORITHMS[algorithm]),
        # Eight ranks share the cores with the switch; waiting ranks must not block others.
        "mpi_yield_when_idle": "1",
    }
    argv = [
        mpirun.find(only=mpirun.OPEN_MPI).path,
        "-n",
        str(len(hosts)),
        "--host",
        ",".join(f"{emulation.address(host)}:1" for host in hosts),
    ]
    argv += ["--map-by", "node", "--bind-to", "none", "--prtemca", "plm_ssh_agent", str(ssh)]
    argv += ["--prtemca", "oob_tcp_if_include", "eth0"]
    argv += [part for name, value in settings.items() for part in ("--mca", name, value)]
    argv += [sys.executable, "-m", "benches.orders.mpi_rank", str(size_bytes), str(calls), str(out)]
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    process = emulation.popen(
        hosts[0],
        _named(hosts[0], argv),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PeerError(f"mpirun did not end within {TIMEOUT_S:g} s") from None
    if process.returncode != 0 or not out.exists():
        raise PeerError(f"mpirun ended with {process.returncode}: {said[-2000:]}")
    return float(json.loads(out.read_text()))


def _named(host: str, argv: Sequence[str]) -> list[str]:
    """Wrap a command so that the host's name is the machine's."""
    return ["unshare", "--uts", "sh", "-c", f"hostname {shlex.quote(host)} && exec {shlex.join(argv)}"]


def _script(emulation: Emulation) -> str:
    """`ssh [options] ADDRESS COMMAND...`, for the addresses of this testbed."""
    cases = "\n".join(
        f"  {emulation.address(host.name)}) exec {shlex.join(emulation.command(host.name))} unshare --uts"
        f" sh -c 'hostname {shlex.quote(host.name)} && '\"$*\" ;;"
        for host in emulation.cluster.hosts
    )
    return (
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\ncase "$host" in\n'
        f'{cases}\n  *) echo "no host $host" >&2; exit 255 ;;\nesac\n'
    )

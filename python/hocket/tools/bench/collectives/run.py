"""Launcher of a benchmark's ranks; it returns rank 0's result."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.errors import Error, UsageError
from hocket.job.store import address as addresses
from hocket.start.outcome import Outcome
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.tools.bench.collectives import mpirun
from hocket.tools.bench.collectives.contenders import catalogue
from hocket.tools.bench.collectives.request import Request
from hocket.tools.bench.collectives.result import Result
from hocket.tools.demo.emulation import open_emulation, ranks

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # a folder with a name that nobody can guess is made in it
"""Folder of MPI's shared memory. Our folder in it is removed at the end, with the files that a killed MPI leaves there."""


def measure(request: Request, *, world: int) -> Result:
    """Run all contenders on `world` ranks of this machine, or one on each slot of the request's cluster; progress goes to stderr.

    Raises:
        UsageError: a contender is unknown, or something that it needs is not here.
        Error: a rank failed.
    """
    if not request.contenders:
        raise UsageError(f"nobody is to be measured\nhint: {', '.join(catalogue.CATALOGUE)}")
    if len(set(request.contenders)) < len(request.contenders):
        raise UsageError(f"contenders {', '.join(request.contenders)}: each can be there only once")
    entries = [catalogue.find(name) for name in request.contenders]
    for entry in entries:
        entry.check(request, world)
    memory = str(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="hocket-bench-", dir=memory) as directory:
        asked, written = Path(directory) / "request.json", Path(directory) / "result.json"
        asked.write_bytes(msgspec.json.encode(request))
        argv = [sys.executable, "-m", "hocket.tools.bench.collectives.rank", str(asked), str(written)]
        by_mpirun = any(entry.by_mpirun for entry in entries)
        sys.stderr.flush()
        if request.cluster is not None:
            if by_mpirun:
                raise UsageError(
                    "contender `mpi` does not run on an emulated cluster\nhint: `--against gloo`"
                )
            outcome = _on_cluster(request.cluster, argv)
        else:
            processes = [ProcessSpec(argv=argv)] * world
            if by_mpirun:
                processes = [
                    mpirun.process(
                        argv, world=world, tcp=request.tcp, scratch=directory, asked=request.mpirun
                    )
                ]
            outcome = launch(processes, quiet_others=True, out=sys.stderr.buffer, err=sys.stderr.buffer)
        if outcome.failures:
            first = outcome.failures[0]
            # `mpirun` has shown all ranks' output by then, in its own way.
            raise Error(f"the benchmark failed: {f'mpirun ended with {first.code}' if by_mpirun else first}")
        return typed.of_json(written.read_bytes(), Result)


def _on_cluster(cluster: Cluster, argv: list[str]) -> Outcome:
    slots = [host.name for host in cluster.hosts for _ in range(host.slots)]
    with open_emulation(cluster) as emulation:
        if not emulation.carries_any_program:
            raise Error(f"an emulated cluster needs network namespaces: {emulation.remarks[0]}")
        return launch(
            ranks(emulation, slots, argv),
            store=addresses.join(emulation.address(slots[0]), emulation.port()),
            serve=False,
            quiet_others=True,
            out=sys.stderr.buffer,
            err=sys.stderr.buffer,
        )

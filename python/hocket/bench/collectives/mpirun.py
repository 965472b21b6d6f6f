"""How `mpirun` starts the ranks of a benchmark, so that MPI is a contender like the others.

It runs below our launcher, as if it were the only rank: its ranks then get the job's store and secret from their environment, and
all of them end when the launcher does. What they are in the job they read from MPI's own variables.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hocket.errors import UsageError
from hocket.launch.processes import ProcessSpec

OURS = ("HOCKET_RANK", "HOCKET_WORLD", "HOCKET_LOCAL_RANK", "HOCKET_LOCAL_WORLD")
"""What the launcher says about `mpirun` itself, which is not true of its ranks."""

YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""1: a rank that waits inside MPI lets others have the core."""


def find() -> str:
    """The `mpirun` beside this Python, else that of the PATH; UsageError when there is none."""
    found = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if found is None:
        raise UsageError(
            "contender `mpi` needs mpirun, which is not here\nhint: install Open MPI and pip install 'hocket[mpi]'"
        )
    return found


def process(argv: Sequence[str], *, world: int, tcp: bool, scratch: str) -> ProcessSpec:
    """`world` ranks of a command. Flags and variables are Open MPI's.

    Ranks are bound to no core: threads of the other contenders would be, too. `scratch`: a folder for its files and shared memory.
    """
    without_ours = [part for name in OURS for part in ("-u", name)]
    placed = ["--map-by", ":oversubscribe", "--bind-to", "none"]
    return ProcessSpec(
        argv=["env", *without_ours, find(), "-n", str(world), *placed, *argv],
        environment=_environment(crowded=world > len(os.sched_getaffinity(0)), tcp=tcp, scratch=scratch),
    )


def _environment(*, crowded: bool, tcp: bool, scratch: str) -> dict[str, str]:
    environment = {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": scratch,
        "OMPI_MCA_btl_sm_backing_directory": scratch,
        # It refuses root, who owns most containers, unless told twice.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # Open MPI sets it by itself when it knows that cores are fewer, which it may not in a container.
        YIELD: str(int(crowded)),
    }
    if tcp:
        environment |= {
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_btl_tcp_if_include": "lo",
            # Collectives of their own shared memory, whatever moves the messages.
            "OMPI_MCA_coll": "^sm",
        }
    return environment

"""Launch of a benchmark's ranks with `mpirun`, so that MPI is a contender like the others.

`mpirun` runs below our launcher, as if it were the only rank. Its ranks get the job's store and secret from their environment and
their rank from MPI's own variables, and all of them end when the launcher does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hocket import extras
from hocket.errors import UsageError
from hocket.start.processes import ProcessSpec
from hocket.start.variables import OF_A_RANK

YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""Variable that, set to 1, makes a rank that waits inside Open MPI yield its core."""

LIBRARY = "MPI4PY_LIBMPI"
"""Variable that tells mpi4py's wheel which library to load: that of the chosen `mpirun`."""

OPEN_MPI, MPICH = "Open MPI", "MPICH"


@dataclass(frozen=True)
class Mpirun:
    """Program `mpirun`. `mpi`: its implementation, from its --version."""

    path: str
    mpi: str


def find(asked: str | None = None, *, only: str | None = None) -> Mpirun:
    """Return the given `mpirun`, otherwise the one beside this Python, otherwise that of the PATH.

    Raises:
        UsageError: there is none, or it is of an unknown MPI, or not of `only`.
    """
    path = asked or shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if path is None or not Path(path).is_file():
        which = "" if asked is None else f" at {asked}"
        raise UsageError(
            f"contender `mpi` needs mpirun, which is not here{which}\n"
            f"hint: install Open MPI or MPICH, and {extras.install('mpi')}"
        )
    shown = subprocess.run([path, "--version"], check=False, capture_output=True, text=True).stdout
    mpi = OPEN_MPI if "Open MPI" in shown else MPICH if "HYDRA" in shown else None
    if mpi is None or (only is not None and mpi != only):
        raise UsageError(f"{path} is not of {only or f'{OPEN_MPI} or {MPICH}'}\nhint: it says {shown[:60]!r}")
    return Mpirun(path, mpi)


def process(
    argv: Sequence[str], *, world: int, tcp: bool, scratch: str, asked: str | None = None
) -> ProcessSpec:
    """Return the specification of `world` ranks of a command.

    Ranks are bound to no core, because threads of the other contenders would be, too. `scratch`: a folder for its files and shared
    memory; `asked`: the `mpirun`, whose library mpi4py's wheel then loads.
    """
    mpirun = find(asked)
    crowded = world > len(os.sched_getaffinity(0))
    placed, environment = (
        _open_mpi(crowded=crowded, tcp=tcp, scratch=scratch)
        if mpirun.mpi == OPEN_MPI
        else _mpich(crowded=crowded, tcp=tcp)
    )
    if asked is not None:
        environment |= _library(Path(asked))
    without_ours = [part for name in OF_A_RANK for part in ("-u", name)]
    return ProcessSpec(
        argv=["env", *without_ours, mpirun.path, "-n", str(world), *placed, *argv],
        environment={"OMP_NUM_THREADS": "1", "TMPDIR": scratch, **environment},
    )


def _library(mpirun: Path) -> dict[str, str]:
    found = sorted((mpirun.resolve().parent.parent / "lib").glob("libmpi.so*"))
    return {LIBRARY: str(found[-1])} if found else {}


def _open_mpi(*, crowded: bool, tcp: bool, scratch: str) -> tuple[list[str], dict[str, str]]:
    """Return flags and variables for Open MPI."""
    environment = {
        "OMPI_MCA_btl_sm_backing_directory": scratch,
        # Open MPI refuses root, the user of most containers, without both variables.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # Open MPI yields by itself if it sees too few cores, but in a container it may not see that.
        YIELD: str(int(crowded)),
    }
    if tcp:
        environment |= {
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_btl_tcp_if_include": "lo",
            # Collectives in their own shared memory, whatever moves the messages.
            "OMPI_MCA_coll": "^sm",
        }
    return ["--map-by", ":oversubscribe", "--bind-to", "none"], environment


def _mpich(*, crowded: bool, tcp: bool) -> tuple[list[str], dict[str, str]]:
    # Spins before a waiting rank yields its core: MPICH's own number, or one.
    environment = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"} if crowded else {}
    if tcp:
        # Ranks as if each were on a host of its own, with sockets between them.
        environment |= {
            "MPIR_CVAR_NOLOCAL": "1",
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            "FI_TCP_IFACE": "lo",
        }
    return ["-bind-to", "none"], environment

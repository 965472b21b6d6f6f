"""MPI, called from a compiled loop: Python would add nearly a microsecond to each call, which matters for small ones.

The loop is compiled by numba and calls the C function of the same library that mpi4py has loaded. On one core of an x86 server an
all-reduce over MPI_COMM_SELF takes 0.02 µs in this loop and 0.8 µs through `mpi4py.MPI.Comm.Allreduce`. The blocking functions are
measured, since persistent ones (`MPI_Allreduce_init`) use other algorithms (libnbc, in Open MPI 5) than the tuned ones.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.tools.bench.collectives import mpirun
from hocket.tools.bench.collectives.definitions import DTYPES, ROOT, Elements, own_part
from hocket.tools.bench.collectives.request import Request

TYPES = {"f32": "FLOAT", "f64": "DOUBLE", "i32": "INT32_T", "i64": "INT64_T"}


class Mpi:
    """Contender by MPI. MPI's waits have no deadline; the rank's own deadline ends the process."""

    def __init__(self, job: Job, request: Request) -> None:
        import mpi4py  # noqa: PLC0415  # of the extra `mpi`

        # One thread calls MPI; with more, it would take locks.
        mpi4py.rc.thread_level = "funneled"
        from mpi4py import MPI  # noqa: PLC0415  # starts MPI, with the settings above

        self._mpi, self._in_place = MPI, int(MPI.IN_PLACE)
        world = MPI.COMM_WORLD
        if (world.rank, world.size) != (job.rank, job.world):
            raise UsageError(
                f"MPI calls this process rank {world.rank} of {world.size}, the job rank {job.rank} of {job.world}\n"
                "hint: see whether mpi4py and mpirun are of the same MPI"
            )
        library = " ".join(MPI.Get_library_version().splitlines()[0].partition(",")[0].strip("\0").split())
        wire = "loopback TCP" if request.tcp else "shared memory"
        clear = ", in the clear" if job.settings.tls else ""
        # MPICH yields by default.
        waits = "spins" if os.environ.get(mpirun.YIELD) == "0" else "yields"
        self.about = f"{library}, {wire}{clear}, {waits} when idle, not bound to cores"
        # The library's symbols are found through those linked to it.
        self._library = ctypes.CDLL(MPI.__file__)
        self._alone = np.zeros(1, np.float32)
        self._empty, self._empty_arguments = self._all_reduce(self._alone, "f32", MPI.COMM_SELF)

    def prepare(self, what: str, elements: int, dtype: str) -> None:
        self._source = whole = np.zeros(elements, DTYPES[dtype])
        self._result = np.zeros_like(whole) if what == "all_to_all" else whole
        mpi, comm = self._mpi, self._mpi.COMM_WORLD
        given: tuple[Any, ...]
        kind, op, part = getattr(mpi, TYPES[dtype]), mpi.SUM, elements // comm.size
        at_root = comm.rank == ROOT
        match what:
            case "all_reduce":
                self._loop, self._arguments = self._all_reduce(whole, dtype, comm)
            case "reduce":
                given = (self._in_place, whole) if at_root else (whole, 0)
                self._loop, self._arguments = self._bind(
                    "Reduce", "ppihhih", (*given, elements, kind, op, ROOT, comm)
                )
            case "broadcast":
                self._loop, self._arguments = self._bind(
                    "Bcast", "pihih", (whole, elements, kind, ROOT, comm)
                )
            case "all_gather":
                given = (self._in_place, part, kind, whole, part, kind, comm)
                self._loop, self._arguments = self._bind("Allgather", "pihpihh", given)
            case "reduce_scatter":
                # In place, the result is at the start of the buffer, where the next call's input is.
                self._result = np.zeros_like(whole)
                given = (whole, own_part(self._result, comm.rank, comm.size), part, kind, op, comm)
                self._loop, self._arguments = self._bind("Reduce_scatter_block", "ppihhh", given)
            case "all_to_all":
                given = (whole, part, kind, self._result, part, kind, comm)
                self._loop, self._arguments = self._bind("Alltoall", "pihpihh", given)

    def write(self, values: Elements) -> None:
        self._source[:] = values

    def read(self) -> Elements:
        return self._result

    def run(self, times: int) -> None:
        self._check(self._loop(times, self._arguments))

    def empty(self, times: int) -> None:
        """Run an all-reduce of one element over MPI_COMM_SELF."""
        self._check(self._empty(times, self._empty_arguments))

    def close(self) -> None:
        """Do nothing: MPI ends with the process."""

    def _all_reduce(self, values: Elements, dtype: str, comm: Any) -> tuple[Any, tuple[int, ...]]:
        kind = getattr(self._mpi, TYPES[dtype])
        given = (self._in_place, values, len(values), kind, self._mpi.SUM, comm)
        return self._bind("Allreduce", "ppihhh", given)

    def _bind(self, name: str, signature: str, given: Sequence[Any]) -> tuple[Any, tuple[int, ...]]:
        """Return a compiled loop over one of MPI's functions, and its arguments as numbers.

        `signature`: a letter per argument: p pointer, i int, h handle, which is a pointer or an int in this MPI.
        """
        word = (
            ctypes.c_ssize_t
        )  # as wide as a pointer, and signed, as MPI_IN_PLACE is in some implementations
        handle = word if self._mpi._sizeof(self._mpi.Comm) == ctypes.sizeof(word) else ctypes.c_int
        function = getattr(self._library, f"MPI_{name}")
        function.argtypes = [{"p": word, "i": ctypes.c_int, "h": handle}[letter] for letter in signature]
        function.restype = ctypes.c_int

        @numba.njit(nogil=True)
        def loop(times: int, arguments: tuple[int, ...]) -> int:
            for _ in range(times):
                code = function(*arguments)
                if code != 0:
                    return int(code)
            return 0

        return loop, tuple(self._number(each) for each in given)

    def _number(self, argument: Any) -> int:
        if isinstance(argument, np.ndarray):
            return int(argument.ctypes.data)
        return int(argument) if isinstance(argument, int) else int(self._mpi._handleof(argument))

    def _check(self, code: int) -> None:
        if code != 0:
            raise PeerError(f"contender `mpi`: {self._mpi.Get_error_string(code)}")

"""MPI through mpi4py, with OpenMPI or MPICH. Ranks are those of `mpirun`, which must have started the job."""

from __future__ import annotations

import atexit
import threading
import time
from typing import Any

import numpy as np

from hocket import extras
from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.libraries.call import Call, Elements, parts, place
from hocket.libraries.presence import ANNOUNCE_S, Presence

POLL_S = 50e-6
"""Interval between polls of a collective: MPI has no wait with a deadline."""
SIXTEEN_BITS = {"f16": "FLOAT16_T", "bf16": "BFLOAT16_T"}
"""Types that some MPI implementations do not reduce, by mpi4py's names."""


class Mpi:
    """One communicator per group of ranks."""

    def __init__(self, job: Job) -> None:
        """Initialise MPI unless the script has; every rank must call this."""
        self._place = place(job, "mpi")
        try:
            import mpi4py  # noqa: PLC0415  # of the extra `mpi`

            mpi4py.rc.thread_level = "serialized"
            from mpi4py import MPI  # noqa: PLC0415
        except (ImportError, RuntimeError) as error:
            raise UsageError(
                f"{self._place} cannot be loaded: {error}\nhint: {extras.install('mpi')}, and an MPI"
            ) from None
        self._mpi = MPI
        world = MPI.COMM_WORLD
        if (world.rank, world.size) != (job.rank, job.world):
            raise UsageError(
                f"{self._place}: MPI calls this process rank {world.rank} of {world.size}, the job rank {job.rank} "
                f"of {job.world}\nhint: start the ranks with mpirun"
            )
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise UsageError(
                f"{self._place}: this MPI was started without threads\nhint: MPI_Init_thread with MPI_THREAD_SERIALIZED"
            )
        self._presence = Presence(job, "mpi")
        self._comms: dict[tuple[int, ...], Any] = {}
        self._closed = threading.Event()
        # Kept with their memory, which MPI may still write to.
        self._unfinished: list[Any] = []
        self._calling = threading.Lock()
        atexit.register(self._leave)

    def run(self, call: Call, elements: Elements, into: Elements | None) -> None:
        """See `Library.run`."""
        if call.what == "all_to_all" and into is None:
            raise UsageError(f"{self._place}, {call}: needs a destination")
        typed = self._typed(call, elements)
        comm = self._comm(call)
        if call.what == "reduce_scatter":
            # In place, MPI would leave every result at the start of the buffer.
            own = parts(elements, len(call.group))[comm.rank]
            into = np.empty_like(own)
        mpi = self._mpi
        try:
            with self._calling:
                request = self._start(call, comm, elements, typed, into)
        except (mpi.Exception, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{self._place}, {call}: is refused: {error}") from None
        self._unfinished.append(request)
        try:
            self._presence.wait(call, lambda within_s: self._complete(call, request, within_s))
        except mpi.Exception as error:
            raise PeerError(f"{self._place}, {call}: {error}") from None
        self._unfinished.remove(request)
        if call.what == "reduce_scatter":
            own[:] = into

    def close(self) -> None:
        """Abandon a collective in progress; communicators end with MPI."""
        self._closed.set()
        self._comms.clear()

    def _typed(self, call: Call, elements: Elements) -> Any:
        """Check the reduction: NumPy's bf16 are integers, and MPI would add them as such."""
        name = SIXTEEN_BITS.get(call.dtype)
        if name is None or call.what not in ("all_reduce", "reduce_scatter", "reduce_to"):
            return elements
        null = self._mpi.DATATYPE_NULL
        kind = getattr(self._mpi, name, null)
        if kind == null:
            raise UsageError(
                f"{self._place}, {call}: this MPI does not reduce {call.dtype}\n"
                "hint: cast to f32 before, or use library `gloo` or the native wire"
            )
        return [elements, len(elements), kind]

    def _comm(self, call: Call) -> Any:
        known = self._comms.get(call.group)
        if known is None:
            # MPI itself would wait for ever for a member that does not come.
            self._presence.meet(call)
            with self._calling:
                world = self._mpi.COMM_WORLD
                known = world.Create_group(world.group.Incl(list(call.group)))
            self._comms[call.group] = known
        return known

    def _start(  # noqa: PLR0911, PLR0912  # a case per collective
        self, call: Call, comm: Any, elements: Elements, typed: Any, into: Elements | None
    ) -> Any:
        mpi, n = self._mpi, len(call.group)
        op = {"sum": mpi.SUM, "min": mpi.MIN, "max": mpi.MAX}[call.reduce]
        landing = None if into is None else self._typed(call, into)
        root = 0 if call.root is None else call.group.index(call.root)
        if elements.dtype == np.float16:
            elements = elements.view(np.uint16)  # moved as bits, which any MPI can do
            into = None if into is None else into.view(np.uint16)
        counts = [len(each) for each in parts(elements, n)]
        own = parts(elements, n)[comm.rank]
        match call.what:
            case "all_reduce":
                return comm.Iallreduce(mpi.IN_PLACE, typed, op)
            case "reduce_scatter":
                return comm.Ireduce_scatter(typed, landing, counts, op)
            case "reduce_to":
                if comm.rank == root:
                    return comm.Ireduce(mpi.IN_PLACE, typed, op, root)
                return comm.Ireduce(typed, None, op, root)
            case "broadcast":
                return comm.Ibcast(elements, root)
            case "all_gather":
                return comm.Iallgatherv(mpi.IN_PLACE, [elements, counts])
            case "gather":
                if comm.rank == root:
                    return comm.Igatherv(mpi.IN_PLACE, [elements, counts], root)
                return comm.Igatherv(own, None, root)
            case "scatter":
                if comm.rank == root:
                    return comm.Iscatterv([elements, counts], mpi.IN_PLACE, root)
                return comm.Iscatterv(None, own, root)
            case "all_to_all":
                return comm.Ialltoall(elements, into)
            case "barrier":
                return comm.Ibarrier()
        raise UsageError(f"{self._place}, {call}: there is no such collective")

    def _complete(self, call: Call, request: Any, within_s: float) -> bool:
        deadline_s = time.monotonic() + within_s
        while True:
            with self._calling:  # the one thread that MPI allows at a time
                if self._closed.is_set():
                    raise PeerError(f"{self._place}, {call}: given up, since the job ends")
                if request.Test():
                    return True
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)

    def _leave(self) -> None:
        """Wait until all collectives are complete, else abort: MPI would wait for ever before it ends the process."""
        self.close()
        deadline_s = time.monotonic() + 2 * ANNOUNCE_S  # time for the other ranks to report, too
        with self._calling:
            while not all(request.Test() for request in self._unfinished):
                if time.monotonic() > deadline_s:
                    self._mpi.COMM_WORLD.Abort(1)
                time.sleep(POLL_S)

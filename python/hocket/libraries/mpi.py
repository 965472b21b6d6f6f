"""MPI through mpi4py: OpenMPI and MPICH alike. Ranks are those of `mpirun`, which must have started the job."""

from __future__ import annotations

import time
from typing import Any

from hocket.errors import PeerError, UsageError
from hocket.launch.rendezvous import Job
from hocket.libraries.call import Call, Elements, parts

POLL_S = 50e-6
"""Between looks at a collective under way: MPI has no wait with a deadline."""


class Mpi:
    """One communicator per group of ranks."""

    def __init__(self, job: Job) -> None:
        """MPI is started here if the script has not; every rank must come here."""
        try:
            import mpi4py  # noqa: PLC0415  # optional: pip install 'hocket[mpi]'

            mpi4py.rc.thread_level = "serialized"
            from mpi4py import MPI  # noqa: PLC0415
        except (ImportError, RuntimeError) as error:
            raise UsageError(
                f"library `mpi` cannot be loaded: {error}\nhint: pip install 'hocket[mpi]', and an MPI"
            ) from None
        self._mpi, self._job = MPI, job
        world = MPI.COMM_WORLD
        if (world.rank, world.size) != (job.rank, job.world):
            raise UsageError(
                f"MPI calls this process rank {world.rank} of {world.size}, the job rank {job.rank} of {job.world}\n"
                "hint: start the ranks with mpirun"
            )
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise UsageError(
                "this MPI was started without threads\nhint: MPI_Init_thread with MPI_THREAD_SERIALIZED"
            )
        self._comms: dict[tuple[int, ...], Any] = {}

    def run(self, call: Call, elements: Elements, into: Elements | None) -> None:
        """As `Library`."""
        comm = self._comm(call.group)
        self._wait(call, self._start(call, comm, elements, into))

    def close(self) -> None:
        """Communicators end with MPI."""
        self._comms.clear()

    def _comm(self, ranks: tuple[int, ...]) -> Any:
        known = self._comms.get(ranks)
        if known is None:
            world = self._mpi.COMM_WORLD
            known = self._comms[ranks] = world.Create_group(world.group.Incl(list(ranks)))
        return known

    def _start(  # noqa: PLR0911  # a case per collective
        self, call: Call, comm: Any, elements: Elements, into: Elements | None
    ) -> Any:
        mpi, n = self._mpi, len(call.group)
        op = {"sum": mpi.SUM, "min": mpi.MIN, "max": mpi.MAX}[call.reduce]
        root = 0 if call.root is None else call.group.index(call.root)
        counts = [len(each) for each in parts(elements, n)]
        own = parts(elements, n)[comm.rank]
        match call.what:
            case "all_reduce" | "reduce_scatter":
                return comm.Iallreduce(mpi.IN_PLACE, elements, op)
            case "reduce_to":
                if comm.rank == root:
                    return comm.Ireduce(mpi.IN_PLACE, elements, op, root)
                return comm.Ireduce(elements, None, op, root)
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
        raise UsageError(f"library `mpi` has no {call.what}")

    def _wait(self, call: Call, request: Any) -> None:
        deadline_s = time.monotonic() + self._job.settings.timeout_s
        while not request.Test():
            if time.monotonic() > deadline_s:
                raise PeerError(
                    f"rank {self._job.rank} on {self._job.host}: library `mpi`, {call}: not complete after "
                    f"{self._job.settings.timeout_s:g} s; a rank of its group did not come"
                )
            time.sleep(POLL_S)

"""Hocket's collectives of one host, run by the calling thread from registered memory, as in the torch.distributed backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hocket import _native
from hocket.artefacts import shipped
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.policy.selection import flat_bytes
from hocket.tools.bench.collectives.definitions import DTYPES, ROOT, Elements
from hocket.tools.bench.collectives.request import Request


class Native:
    """Contender for one host. All-reduces are repeated without Python between them, as those of the MPI contender."""

    about = "shared memory, by the calling thread"

    def __init__(self, job: Job, request: Request) -> None:
        """Connect to the other ranks, and create the group and one of this rank alone."""
        if len(set(job.hosts)) > 1:
            raise UsageError("contender `native` is for ranks of one host\nhint: `--ours engine`")
        self._rank, self._world = job.rank, job.world
        self._engine = job.engine()
        timeout_s = job.settings.timeout_s
        areas = [self._engine.allocate(_native.HostGroup.AREA_BYTES) for _ in range(2)]
        offsets = job.store.gather("bench/native", job.rank, job.world, areas[0].arena_offset, timeout_s)
        self._group = _native.HostGroup(
            self._engine,
            areas[0],
            members=list(enumerate(offsets)),
            timeout_s=timeout_s,
            flat_bytes=flat_bytes(request.tuning or shipped.tuning(), job.world),
        )
        self._alone = _native.HostGroup(
            self._engine,
            areas[1],
            members=[(job.rank, areas[1].arena_offset)],
            timeout_s=timeout_s,
            flat_bytes=(0, 0),
        )
        self._nothing = self._engine.allocate(4)

    def prepare(self, what: str, elements: int, dtype: str) -> None:
        item_bytes = np.dtype(DTYPES[dtype]).itemsize
        size_bytes = elements * item_bytes
        self._memory = [self._engine.allocate(size_bytes) for _ in range(2 if what == "all_to_all" else 1)]
        self._buffers = [np.frombuffer(memoryview(each), DTYPES[dtype]) for each in self._memory]
        wholes = [(each.address, size_bytes) for each in self._memory]
        edge = elements // self._world * item_bytes
        pieces = [[(at + part * edge, edge) for part in range(self._world)] for at, _ in wholes]
        group, own = self._group, pieces[0][self._rank]
        calls: dict[str, Callable[[], object]] = {
            "reduce": lambda: group.reduce(wholes[0], "sum", dtype, ROOT),
            "broadcast": lambda: group.broadcast(wholes[0], ROOT),
            "all_gather": lambda: group.all_gather(own, pieces[0]),
            "reduce_scatter": lambda: group.reduce_scatter(pieces[0], own, "sum", dtype),
            "all_to_all": lambda: group.all_to_all(pieces[0], pieces[-1]),
        }
        if what == "all_reduce":
            self._repeat: Callable[[int], object] = lambda times: group.time_all_reduce(
                wholes[0], "sum", dtype, times
            )
        else:
            self._repeat = lambda times: [calls[what]() for _ in range(times)]

    def write(self, values: Elements) -> None:
        self._buffers[0][:] = values

    def read(self) -> Elements:
        return self._buffers[-1]

    def run(self, times: int) -> None:
        self._repeat(times)

    def empty(self, times: int) -> None:
        """Run an all-reduce of one element over this rank alone."""
        self._alone.time_all_reduce((self._nothing.address, 4), "sum", "f32", times)

    def close(self) -> None:
        self._engine.close()

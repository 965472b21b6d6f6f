"""Hocket's engine as in a training step: a registered bucket, and a program that is launched and awaited."""

from __future__ import annotations

import numpy as np

from hocket import _native
from hocket.artefacts import shipped
from hocket.artefacts.chunks import CHUNK_BYTES, SHARED_CHUNK_BYTES, chunk_bytes
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.planning.links import link_graph
from hocket.policy import algorithms, single
from hocket.policy.topology import Topology
from hocket.tools.bench.collectives.definitions import DTYPES, Elements
from hocket.tools.bench.collectives.request import Request


class Engine:
    """Contender by the engine. Programs are compiled as a policy's; an all-reduce is thus the same, op for op, as a plan's."""

    def __init__(self, job: Job, request: Request) -> None:
        self._world, self._timeout_s = job.world, job.settings.timeout_s
        self._topology = (
            Topology.even(world=job.world, hosts_per_rack=None if request.tcp else 1)
            if request.cluster is None
            else Topology.of(job.hosts, request.cluster)
        )
        self._algorithm, self._tuning = request.algorithm, request.tuning or shipped.tuning()
        self._chunk_bytes = request.chunk_bytes or self._fitting_chunk_bytes(request)
        self._engine = job.engine()
        self._program: int | None = None
        self._empty = self._engine.load(
            _native.Builder("empty", job.world).finish(), {}, priority=0, label="empty"
        )
        wire = (
            "loopback TCP"
            if request.tcp
            else "shared memory"
            if request.cluster is None
            else "TCP between hosts"
        )
        self.about = f"{wire}, chunks of {self._chunk_bytes:,} bytes, algorithm {request.algorithm}"

    def prepare(self, what: str, elements: int, dtype: str) -> None:
        if self._program is not None:
            self._engine.unload(self._program)
        size_bytes = elements * np.dtype(DTYPES[dtype]).itemsize
        program = self._compile(what, elements, dtype, size_bytes)
        count = 2 if what == "all_to_all" else 1
        self._memory = [self._engine.allocate(size_bytes) for _ in range(count)]
        self._buffers = [np.frombuffer(memoryview(each), DTYPES[dtype]) for each in self._memory]
        bound = {number: (memory, 0) for number, memory in enumerate(self._memory)}
        self._program = self._engine.load(program, bound, priority=0, label=f"{what} of {size_bytes} bytes")

    def write(self, values: Elements) -> None:
        self._buffers[0][:] = values

    def read(self) -> Elements:
        return self._buffers[-1]

    def run(self, times: int) -> None:
        assert self._program is not None, "prepared before"  # noqa: S101  # the caller's order of calls
        self._repeat(self._program, times)

    def empty(self, times: int) -> None:
        """Run a program without ops."""
        self._repeat(self._empty, times)

    def close(self) -> None:
        self._engine.close()

    def _repeat(self, program: int, times: int) -> None:
        launch, wait, timeout_s = self._engine.launch, self._engine.wait, self._timeout_s
        for _ in range(times):
            launch(program)
            wait(program, timeout_s)

    def _fitting_chunk_bytes(self, request: Request) -> int:
        if len(set(self._topology.hosts)) == 1:
            return SHARED_CHUNK_BYTES
        if request.cluster is None:
            return CHUNK_BYTES
        return chunk_bytes(link_graph(request.cluster, self._world).slowest_bit_per_s)

    def _compile(self, what: str, elements: int, dtype: str, size_bytes: int) -> _native.Program:
        group = list(range(self._world))
        if what == "all_reduce":
            # Ranks of one rack are adjacent, whatever order the ranks have.
            group = single.by_place(self._topology.hosts, self._topology.racks)
        known = algorithms.fitting(what, group, self._topology)
        if self._algorithm == "auto":
            algorithm, numbers = algorithms.choose(what, group, size_bytes, self._topology, self._tuning)
        elif self._algorithm in known:
            algorithm, numbers = known[self._algorithm]
        else:
            raise UsageError(
                f"{what} of these {self._world} ranks has no algorithm `{self._algorithm}`\nhint: {', '.join(known)}"
            )
        return single.collective_program(
            what,
            group,
            elements=elements,
            dtype=dtype,
            algorithm=algorithm,
            numbers=numbers,
            chunk_bytes=self._chunk_bytes,
        )

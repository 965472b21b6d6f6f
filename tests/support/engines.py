"""Engines of all ranks of a job in this process: what needs no process of its own runs without one."""

import threading
import uuid

import numpy as np

from hocket import _native

TIMEOUT_S = 20.0

FABRICS = ("fabric:tcp", "fabric:shm", "fabric:udp")
"""Providers of libfabric that need no special card."""


class Job:
    """One engine per entry of `hosts`; engines with the same host share memory, others a `wire`. `streams`: by rank, of connections
    to each other one."""

    def __init__(self, hosts, wire="tcp", *, elastic=False, streams=None, timeout_s=TIMEOUT_S):
        name = uuid.uuid4().hex
        self.engines = [
            _native.Engine(
                rank=rank,
                world=len(hosts),
                job=name,
                secret=b"secret",
                host=host,
                bind=["127.0.0.1"],
                wire=wire,
                elastic=elastic,
            )
            for rank, host in enumerate(hosts)
        ]
        peers = [(engine.addresses, host) for engine, host in zip(self.engines, hosts, strict=True)]
        asked = streams or [None] * len(hosts)
        self.each(lambda engine, rank: engine.connect(peers, timeout_s, asked[rank]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, program, buffers):
        """Loads and launches a program; `buffers[rank]` are its bound buffers, and become the results."""
        memories = []
        for engine, bound in zip(self.engines, buffers, strict=True):
            memories.append([engine.allocate(max(1, values.nbytes)) for values in bound])
            for memory, values in zip(memories[-1], bound, strict=True):
                memoryview(memory)[: values.nbytes] = values.tobytes()

        def work(engine, rank):
            bound = {at: (memory, 0) for at, memory in enumerate(memories[rank])}
            number = engine.load(program, bound, priority=0, label=program.name)
            engine.launch(number)
            engine.wait(number, TIMEOUT_S)

        self.each(work)
        for rank, bound in enumerate(buffers):
            for memory, values in zip(memories[rank], bound, strict=True):
                if values.size:
                    values[:] = np.frombuffer(memory, values.dtype, count=values.size)

    def close(self):
        """Of all ranks at once, as at the end of a job.

        Each engine has a terabyte of addresses as long as something refers to it, such as a test's closures until the
        collector looks; a process has 128.
        """
        self.each(lambda engine, _: engine.close())
        self.engines.clear()

    def each(self, work):
        """`work(engine, rank)` of all ranks at once; their results."""
        errors, results = [], {}

        def guarded(engine, rank):
            try:
                results[rank] = work(engine, rank)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(e, r)) for r, e in enumerate(self.engines)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert not errors, errors
        return [results[rank] for rank in range(len(self.engines))]

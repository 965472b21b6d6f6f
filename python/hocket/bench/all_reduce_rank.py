"""One rank of `hocket bench all_reduce`: times all-reduces of registered buckets, in turns with other libraries.

Started by `hocket.bench.all_reduce` on every rank; rank 0 writes the result as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

import torch
from hocket import _native
from hocket.artefacts.plan import Synchroniser
from hocket.bench.alternate import Spread, alternate
from hocket.launch.rendezvous import Job, join
from hocket.planners.compile import all_reduce_program
from hocket.settings import Settings

BYTES_PER_ELEMENT = 4


def main() -> None:
    """Parse the arguments, meet the other ranks, measure every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", required=True, help="bytes, separated by commas")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--chunk-bytes", type=int, required=True)
    parser.add_argument("--against", default="")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings.from_environment()
    with join(settings) as job:
        if arguments.against == "gloo":
            _start_gloo(job, settings.start_timeout_s)
        if arguments.tcp:
            job.identity = f"{job.identity}/{job.rank}"
        engine = job.engine()
        synchroniser = Synchroniser(algorithm=arguments.algorithm, chunk_bytes=arguments.chunk_bytes)
        ring_barrier = _Bucket(engine, job, 1, Synchroniser(algorithm="direct"), settings.timeout_s)
        sizes = [int(size) for size in arguments.sizes.split(",")]
        rows = []
        for size_bytes in sizes:
            bucket = _Bucket(engine, job, size_bytes // BYTES_PER_ELEMENT, synchroniser, settings.timeout_s)
            rows.append(_measure(job, bucket, ring_barrier.run, arguments, settings.timeout_s))
        engine.close()
        if job.rank == 0:
            arguments.out.write_text(json.dumps(rows))
        if arguments.against == "gloo":
            dist.destroy_process_group()


class _Bucket:
    """A registered bucket of f32 and its all-reduce."""

    def __init__(
        self, engine: _native.Engine, job: Job, elements: int, synchroniser: Synchroniser, timeout_s: float
    ) -> None:
        self.memory = engine.allocate(elements * BYTES_PER_ELEMENT)
        self.values = np.frombuffer(memoryview(self.memory), dtype=np.float32)
        program = all_reduce_program(
            world=job.world, elements=elements, dtype="f32", op="sum", scale=1.0, synchroniser=synchroniser
        )
        self._number = engine.load(program, {0: (self.memory, 0)}, priority=0, label=f"{elements} elements")
        self._engine = engine
        self._timeout_s = timeout_s

    def run(self) -> None:
        self._engine.launch(self._number)
        self._engine.wait(self._number, self._timeout_s)


def _start_gloo(job: Job, timeout_s: float) -> None:
    if job.rank == 0:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        job.store.set("bench/gloo", store.port)
    else:
        store = TCPStore("127.0.0.1", job.store.get("bench/gloo", timeout_s), is_master=False)
    dist.init_process_group("gloo", store=store, rank=job.rank, world_size=job.world)


def _measure(
    job: Job, bucket: _Bucket, barrier: Callable[[], None], arguments: argparse.Namespace, timeout_s: float
) -> dict[str, Any]:
    elements = bucket.values.size
    own = np.arange(elements, dtype=np.float32) % 64 + job.rank
    expected = np.arange(elements, dtype=np.float32) % 64 * job.world + job.world * (job.world - 1) / 2
    bucket.values[:] = own
    bucket.run()
    wrong = int(np.count_nonzero(bucket.values != expected))
    # Sums of zeros stay zeros, however many rounds there are.
    bucket.values[:] = 0
    contenders: dict[str, Callable[[], object]] = {"hocket": bucket.run}
    if arguments.against == "gloo":
        theirs = torch.zeros(elements)
        contenders["gloo"] = lambda: dist.all_reduce(theirs)
    times_s = alternate(contenders, rounds=arguments.rounds, before=barrier)
    size_bytes = elements * BYTES_PER_ELEMENT
    everyone = job.store.gather(f"bench/{size_bytes}", job.rank, job.world, [wrong, times_s], timeout_s)
    # A collective is over when its last rank is.
    slowest = {
        name: [max(each) for each in zip(*(times[name] for _, times in everyone), strict=True)]
        for name in times_s
    }
    row: dict[str, Any] = {
        "size_bytes": size_bytes,
        "wrong": sum(wrong for wrong, _ in everyone),
    }
    moved_bytes = 2 * (job.world - 1) / job.world * size_bytes
    for name, series in slowest.items():
        spread = Spread.of(series)
        row[name] = {
            "median_s": spread.median_s,
            "p10_s": spread.p10_s,
            "p90_s": spread.p90_s,
            "bus_byte_per_s": moved_bytes / spread.median_s,
            "algorithm_byte_per_s": size_bytes / spread.median_s,
        }
    return row


if __name__ == "__main__":
    main()

"""One rank of `python -m benches directions`, `late` and `latency`: an all-reduce by a plan, by the ring and by Gloo, in turns.

Started on every host by the `rows` of these; rank 0 writes seconds by contender and turn as JSON. Without a plan, ranks look at
their network and make the default one, as a job without a file.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hocket import _native
from hocket.artefacts import files
from hocket.artefacts.chunks import chunk_bytes
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.job.rendezvous import Job, join
from hocket.libraries.torch_distributed import serve_store
from hocket.measure.quick import known_cluster
from hocket.planning.compile import all_reduce_program, bucket_program
from hocket.planning.default import by_cluster, default_plan
from hocket.planning.links import link_graph
from hocket.settings import Settings


def main() -> None:
    """Run every contender in every turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--cluster", type=Path)
    parser.add_argument("--bytes", type=int, help="of the all-reduce, without a plan")
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--late-rank", type=int, help="a rank that begins each turn late")
    parser.add_argument("--late-s", type=float, default=0.0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings.from_environment()
    with join(settings) as job:
        engine = job.engine()
        if asked.plan is None:
            plan, cluster = _by_itself(job, engine, asked.bytes)
        else:
            plan, cluster = files.read(asked.plan, Plan), files.read(asked.cluster, Cluster)
        contenders = _contenders(job, engine, plan, cluster)
        times_s: dict[str, list[float]] = {name: [] for name in contenders}
        # The first turn warms up.
        for turn in range(asked.turns + 1):
            for name, call in contenders.items():
                key = f"directions/{turn}/{name}"
                job.store.gather(key, job.rank, job.world, None, settings.timeout_s)
                began_s = time.perf_counter()
                if job.rank == asked.late_rank:
                    time.sleep(asked.late_s)
                call()
                spent_s = time.perf_counter() - began_s
                everyone = job.store.gather(f"{key}/end", job.rank, job.world, spent_s, settings.timeout_s)
                if turn:
                    times_s[name].append(max(everyone))
        dist.destroy_process_group()
        engine.close()
        if job.rank == 0:
            asked.out.write_text(json.dumps(times_s))


def _by_itself(job: Job, engine: _native.Engine, size_bytes: int) -> tuple[Plan, Cluster]:
    """The default plan of a job without files, and the network that it saw."""
    cluster = known_cluster(job, engine, None)
    assert cluster is not None, "no look at so few or so many hosts"  # noqa: S101
    gradients = [Gradient("all", (size_bytes // ITEM_BYTES["f32"],), "f32")]
    return default_plan(gradients, by_cluster(gradients, job.hosts, cluster)), cluster


def _contenders(
    job: Job, engine: _native.Engine, plan: Plan, cluster: Cluster
) -> dict[str, Callable[[], None]]:
    """Every contender's call, which checks its own result: the mean of the ranks' numbers."""
    elements = sum(bucket.elements for bucket in plan.buckets)
    memory = engine.allocate(elements * ITEM_BYTES["f32"])
    values = np.frombuffer(memoryview(memory), np.float32)
    mean, timeout_s = (job.world - 1) / 2, job.settings.timeout_s
    planned, start = [], 0
    for at, bucket in enumerate(plan.buckets):
        bound = {0: (memory, start * ITEM_BYTES["f32"])}
        program = bucket_program(at, plan)
        planned.append(engine.load(program, bound, priority=bucket.priority, label=f"bucket {at}"))
        start += bucket.elements
    ring = all_reduce_program(
        world=job.world,
        elements=elements,
        dtype="f32",
        op="sum",
        scale=1.0 / job.world,
        route=AllReduce(algorithm="ring"),
        chunk_bytes=chunk_bytes(link_graph(cluster, job.world).slowest_bit_per_s),
    )
    ringed = [engine.load(ring, {0: (memory, 0)}, priority=0, label="ring")]
    tensor = torch.zeros(elements)
    _join_gloo(job)

    def native(programs: list[int]) -> Callable[[], None]:
        def call() -> None:
            values[:] = job.rank
            for each in programs:
                engine.launch(each)
            for each in programs:
                engine.wait(each, timeout_s)
            _check(bool((values == mean).all()))

        return call

    def gloo() -> None:
        tensor.fill_(job.rank)
        dist.all_reduce(tensor)
        _check(bool((tensor == mean * job.world).all()))

    return {"plan": native(planned), "ring": native(ringed), "gloo": gloo}


def _join_gloo(job: Job) -> None:
    timeout = timedelta(seconds=job.settings.timeout_s)
    if job.rank == 0:
        store = serve_store(job.bind, timeout)
        job.store.set("directions/torch", [job.bind, store.port])
    else:
        host, port = job.store.get("directions/torch", job.settings.start_timeout_s)
        store = TCPStore(host, port, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=job.rank, world_size=job.world, timeout=timeout)


def _check(right: bool) -> None:
    assert right, "a wrong sum"  # noqa: S101  # then its time is of no interest


if __name__ == "__main__":
    main()

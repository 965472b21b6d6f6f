"""Times collectives of one host call by call, with a barrier before each: `python examples/one_host.py`.

A script of its own, beside `hocket bench`: it uses none of that benchmark's code, and the rows `hocket` and `gloo` are plain
`torch.distributed`. The rows `engine` and `thread` reduce registered memory, as `hocket.torch.distribute` and the process group do.
All rows take turns in the same processes. The time of a call is that of its slowest rank; a row is the median over the calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from hocket import _native
from hocket.artefacts import shipped
from hocket.artefacts.chunks import SHARED_CHUNK_BYTES
from hocket.policy import single
from hocket.policy.selection import flat_bytes

Call = Callable[[], object]
TIMEOUT_S = 60.0
BLOCK = 5
"""Calls of a row before the next row has its turn."""


def calls_of(what: str, elements: int, gloo: dist.ProcessGroup) -> dict[str, Call]:
    """What is timed, by row. Tensors are of zeros, which stay zeros however often they are added."""
    world = dist.get_world_size()
    rows: dict[str, Call] = {}
    for row, group in (("hocket", dist.group.WORLD), ("gloo", gloo)):
        tensor = torch.zeros(elements)
        if what == "all_reduce":
            rows[row] = lambda tensor=tensor, group=group: dist.all_reduce(tensor, group=group)
        elif what == "reduce":
            rows[row] = lambda tensor=tensor, group=group: dist.reduce(tensor, 0, group=group)
        else:
            into = torch.zeros(elements)
            rows[row] = lambda tensor=tensor, into=into, group=group: dist.all_to_all_single(
                into, tensor, group=group
            )
    if what == "all_reduce":
        rows |= registered(elements, world)
    return rows


def registered(elements: int, world: int) -> dict[str, Call]:
    """All-reduces of memory that Hocket allocated: by its engine, and by the calling thread."""
    engine = dist.group.WORLD.node.engine
    bucket, area, other = (
        engine.allocate(size) for size in (elements * 4, _native.HostGroup.AREA_BYTES, elements * 4)
    )
    program = single.collective_program(
        "all_reduce",
        list(range(world)),
        elements=elements,
        dtype="f32",
        algorithm="in_place",
        numbers=(),
        chunk_bytes=SHARED_CHUNK_BYTES,
    )
    number = engine.load(program, {0: (bucket, 0)}, priority=0, label="bucket")
    offsets: list[int] = [0] * world
    dist.all_gather_object(offsets, area.arena_offset)
    group = _native.HostGroup(
        engine,
        area,
        members=list(enumerate(offsets)),
        timeout_s=TIMEOUT_S,
        flat_bytes=flat_bytes(shipped.tuning(), world),
    )

    def launch() -> None:
        engine.launch(number)
        engine.wait(number, TIMEOUT_S)

    lent = (other.address, elements * 4)
    return {"engine": launch, "thread": lambda: group.all_reduce(lent, "sum", "f32")}


def rank_main(rank: int, store: str, request: argparse.Namespace) -> None:
    """One rank; rank 0 writes the results."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "hocket",
        init_method=f"file://{store}",
        rank=rank,
        world_size=request.world,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=TIMEOUT_S))
    for size_bytes in request.sizes:
        rows = calls_of(request.collective, size_bytes // 4, gloo)
        rows = {name: rows[name] for name in request.rows if name in rows}
        times_s = {name: [] for name in rows}
        for turn in range(-1, request.calls // BLOCK):
            for name, call in rows.items():
                for _ in range(BLOCK):
                    dist.barrier(group=gloo if name == "gloo" or request.barrier == "gloo" else None)
                    began_s = time.perf_counter()
                    call()
                    took_s = time.perf_counter() - began_s
                    if turn >= 0:
                        times_s[name].append(took_s)
        everyone = [None] * request.world
        dist.all_gather_object(everyone, times_s, group=gloo)
        if rank == 0:
            medians_s = {
                name: statistics.median(
                    max(each) for each in zip(*(of[name] for of in everyone), strict=True)
                )
                for name in rows
            }
            cache_line_ns = _native.cache_line_ns()
            sys.stdout.write(
                json.dumps({"bytes": size_bytes, "cache_line_ns": cache_line_ns, **medians_s}) + "\n"
            )
            sys.stdout.flush()
    dist.barrier(group=gloo)
    dist.destroy_process_group()


def main() -> None:
    """Starts the ranks on this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--collective", choices=("all_reduce", "reduce", "all_to_all"), default="all_reduce")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 25_000_000, 100_000_000])
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--rows", nargs="+", default=["hocket", "gloo", "engine", "thread"])
    parser.add_argument("--barrier", choices=("own", "gloo"), default="own")
    request = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(rank_main, (str(Path(folder) / "store"), request), nprocs=request.world)


if __name__ == "__main__":
    main()

"""One rank of `hocket bench trace`."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from hocket import _native
from hocket.artefacts.chunks import SHARED_CHUNK_BYTES
from hocket.artefacts.plan import AllReduce
from hocket.job.rendezvous import join
from hocket.planning.compile import all_reduce_program
from hocket.settings import Settings
from hocket.tools.bench.alternate import Spread, alternate

BUCKETS = 3
ELEMENTS = 1_048_576
MATRIX = 512
MATRIX_PRODUCTS = 6


def main() -> None:
    """Meet the other ranks, take turns, let rank 0 write `result.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings.from_environment()
    with join(settings) as job:
        off, on = job.engine(), job.engine(trace=arguments.directory)
        times_s = alternate(
            {
                "off": _step(off, job.world, settings.timeout_s),
                "on": _step(on, job.world, settings.timeout_s),
            },
            rounds=arguments.rounds,
            before=_barrier(off, job.world, settings.timeout_s),
            warm_up=5,
        )
        for engine in (off, on):
            engine.close()
        everyone = job.store.gather("bench/trace", job.rank, job.world, times_s, settings.timeout_s)
        if job.rank == 0:
            slowest = {
                name: [max(each) for each in zip(*(times[name] for times in everyone), strict=True)]
                for name in times_s
            }
            result = {name: msgspec.to_builtins(Spread.of(series)) for name, series in slowest.items()}
            # Neighbouring turns share the machine's noise: take the median of their ratios, not the ratio of medians.
            ratios = [b / a for a, b in zip(slowest["off"], slowest["on"], strict=True)]
            result["ratio"] = statistics.median(ratios)
            (arguments.directory / "result.json").write_text(json.dumps(result))


def _step(engine: _native.Engine, world: int, timeout_s: float) -> Callable[[], None]:
    programs = [_load(engine, world, ELEMENTS, index) for index in range(BUCKETS)]
    left, right = torch.rand(MATRIX, MATRIX), torch.rand(MATRIX, MATRIX)

    def step() -> None:
        for _ in range(MATRIX_PRODUCTS):
            torch.mm(left, right)
        for program in programs:
            engine.launch(program)
        for program in programs:
            engine.wait(program, timeout_s)

    return step


def _barrier(engine: _native.Engine, world: int, timeout_s: float) -> Callable[[], None]:
    program = _load(engine, world, 1, BUCKETS)

    def barrier() -> None:
        engine.launch(program)
        engine.wait(program, timeout_s)

    return barrier


def _load(engine: _native.Engine, world: int, elements: int, index: int) -> int:
    memory = engine.allocate(elements * 4)
    program = all_reduce_program(
        world=world,
        elements=elements,
        dtype="f32",
        op="sum",
        scale=1.0,
        route=AllReduce(algorithm="in_place"),
        chunk_bytes=SHARED_CHUNK_BYTES,
    )
    return engine.load(program, {0: (memory, 0)}, priority=index, label=f"bucket {index}")


if __name__ == "__main__":
    main()

"""One rank of the row `ring` of `python -m benches policies`: a ring written in a policy against the engine's own, in turns."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path

import numpy as np

from hocket._native import PassOptions, Program
from hocket.job.rendezvous import join
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, bucket_program
from hocket.settings import Settings
from hocket.tools.bench.alternate import Spread, alternate

CHUNK_BYTES = 524_288
SAMPLED_BYTES = 400_000_000


class ProgrammedRing(Policy):
    """Reduce-scatter and all-gather around the ranks, by hand."""

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Use a scratch buffer and an addition per step, for fusion to remove."""
        n, parts = cx.world, cx.split(buffer, cx.world)
        after, before = (cx.rank + 1) % n, (cx.rank - 1) % n
        for step in range(1, n):
            cx.send(parts[(cx.rank - step) % n], after)
            mine = parts[(cx.rank - step - 1) % n]
            cx.add(mine, cx.recv(cx.alloc(len(mine)), before), into=mine)
        cx.scale(parts[cx.rank], 1 / n)
        for step in range(n - 1):
            cx.send(parts[(cx.rank - step) % n], after)
            cx.recv(parts[(cx.rank - step - 1) % n], before)


def main() -> None:
    """Time both rings at each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", required=True, help="bytes, separated by commas")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    settings = Settings.from_environment()
    rows = []
    with join(settings) as job:
        engine = job.engine()
        barrier = engine.allocate(4)
        meet = engine.load(_own(job.world, 1, "direct"), {0: (barrier, 0)}, priority=0, label="barrier")

        def run(number: int) -> None:
            engine.launch(number)
            engine.wait(number, settings.timeout_s)

        for size_bytes in (int(size) for size in arguments.sizes.split(",")):
            elements = size_bytes // 4
            memory = engine.allocate(size_bytes)
            values = np.frombuffer(memoryview(memory), np.float32)
            programs = {
                "engine": _own(job.world, elements, "ring"),
                "policy": _programmed(job.world, elements),
            }
            numbers = {
                name: engine.load(program, {0: (memory, 0)}, priority=0, label=name)
                for name, program in programs.items()
            }
            wrong = 0
            for number in numbers.values():
                values[:] = job.rank
                run(number)
                wrong += int(np.count_nonzero(values != (job.world - 1) / 2))
            values[:] = 0
            times_s: dict[str, list[float]] = {name: [] for name in numbers}
            # The second one finds warmer or colder caches, so the order alternates.
            for turn in (list(numbers), list(reversed(numbers))):
                halves = alternate(
                    {name: functools.partial(run, numbers[name]) for name in turn},
                    # Small sizes are short, and noisier.
                    rounds=max(arguments.rounds, SAMPLED_BYTES // size_bytes),
                    before=lambda: run(meet),
                )
                for name, half in halves.items():
                    times_s[name] += half
            everyone = job.store.gather(
                f"ring/{size_bytes}", job.rank, job.world, [wrong, times_s], settings.timeout_s
            )
            slowest = {
                name: [max(each) for each in zip(*(times[name] for _, times in everyone), strict=True)]
                for name in times_s
            }
            rows.append(
                {
                    "size_bytes": size_bytes,
                    "wrong": sum(wrong for wrong, _ in everyone),
                    **{name: Spread.of(series).median_s for name, series in slowest.items()},
                }
            )
            for number in numbers.values():
                engine.unload(number)
        engine.close()
        if job.rank == 0:
            arguments.out.write_text(json.dumps(rows))


def _own(world: int, elements: int, algorithm: str) -> Program:
    """The engine's program, with every bucket's check for NaN."""
    program = Program.all_reduce(
        name=algorithm,
        world=world,
        elements=elements,
        dtype="f32",
        op="sum",
        scale=1.0 / world,
        algorithm=algorithm,
        sizes=(),
        record_non_finite=True,
    )
    return program.compiled(PassOptions(chunk_bytes=CHUNK_BYTES))


def _programmed(world: int, elements: int) -> Program:
    policy = ProgrammedRing()
    context = TraceContext.of(
        policy, Topology.even(world=world, hosts_per_rack=1), {"chunk_bytes": CHUNK_BYTES}
    )
    return bucket_program(policy, Bucket((Gradient("g", (elements,), "f32", 0, 0),), 0), context).program


if __name__ == "__main__":
    main()

"""One rank of MPI's all-reduce in `python -m benches orders`; rank 0 writes the slowest rank's seconds per call."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

WARM_UP = 3


def main() -> None:
    """Run with arguments `SIZE_BYTES CALLS FILE`."""
    from mpi4py import MPI  # noqa: PLC0415  # loading it starts MPI

    size_bytes, calls = int(sys.argv[1]), int(sys.argv[2])
    world = MPI.COMM_WORLD
    given, summed = np.ones(size_bytes // 4, np.float32), np.empty(size_bytes // 4, np.float32)
    for _ in range(WARM_UP):
        world.Allreduce(given, summed)
    assert (summed == world.size).all(), "a wrong sum"  # noqa: S101  # then its time is of no interest
    world.Barrier()
    began_s = time.perf_counter()
    for _ in range(calls):
        world.Allreduce(given, summed)
    slowest_s = world.allreduce((time.perf_counter() - began_s) / calls, MPI.MAX)
    if world.rank == 0:
        Path(sys.argv[3]).write_text(json.dumps(slowest_s))


if __name__ == "__main__":
    main()

"""One rank of `test_mpi.py`, started by mpirun: every collective of the library against NumPy."""

import sys
from dataclasses import replace

import numpy as np

from hocket.launch.rendezvous import join
from hocket.libraries.call import Call, open_library, parts
from hocket.settings import Settings


def main():
    settings = replace(Settings.from_environment(), timeout_s=20.0, start_timeout_s=20.0)
    with join(settings) as job:
        library = open_library(sys.argv[1], job)
        for dtype in ("f32", "f64", "i32"):
            for group in ((0, 1, 2), (2, 0)):
                if job.rank in group:
                    check(library, job.rank, group, dtype)
        library.close()
        job.store.barrier("done", job.rank, job.world, 20)
    sys.stdout.write(f"rank {job.rank} is right\n")
    sys.stdout.flush()


def check(library, rank, group, dtype):
    n, own = len(group), group.index(rank)
    kinds = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
    every = [np.arange(6 * n, dtype=kinds[dtype]) * (at + 1) + at for at in range(n)]

    def run(what, reduce="sum", root=None, into=None):
        values = every[own].copy()
        library.run(Call(what, group, reduce, None if root is None else group[root], dtype), values, into)
        return values

    for reduce, by in (("sum", np.sum), ("min", np.min), ("max", np.max)):
        assert np.array_equal(run("all_reduce", reduce), by(every, axis=0))
    assert np.array_equal(parts(run("reduce_scatter"), n)[own], parts(np.sum(every, axis=0), n)[own])
    gathered = np.concatenate([parts(each, n)[at] for at, each in enumerate(every)])
    assert np.array_equal(run("all_gather"), gathered)
    assert np.array_equal(run("broadcast", root=1), every[1])
    reduced, collected = run("reduce_to", root=1), run("gather", root=1)
    if own == 1:
        assert np.array_equal(reduced, np.sum(every, axis=0))
        assert np.array_equal(collected, gathered)
    assert np.array_equal(parts(run("scatter", root=1), n)[own], parts(every[1], n)[own])
    into = np.empty_like(every[own])
    run("all_to_all", into=into)
    assert np.array_equal(into, np.concatenate([parts(each, n)[own] for each in every]))


if __name__ == "__main__":
    main()

"""One rank of `test_libraries.py`: every collective of a library against NumPy, or a member that stays away."""

import os
import socket
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from hocket.errors import Error
from hocket.job.rendezvous import join
from hocket.libraries.call import DTYPES, Call, parts
from hocket.libraries.catalogue import open_library
from hocket.settings import Settings

SIZES = (0, 2, 7, 30)
"""Parts that are empty, uneven, even."""


def main():
    name, what, timeout_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    settings = replace(Settings.from_environment(), timeout_s=timeout_s, start_timeout_s=20.0)
    with join(settings) as job:
        library = open_library(name, job)
        job.store.barrier(
            "open", job.rank, job.world, 20
        )  # loading torch takes longer than some time-outs here
        {"collectives": collectives, "stays_away": stays_away, "traffic": traffic}[what](library, job, name)
        job.store.barrier(
            "done", job.rank, job.world, 20
        )  # one that closes early takes others' connections along
        library.close()
    sys.stdout.write(f"rank {job.rank} is right\n")
    sys.stdout.flush()


def collectives(library, job, name):
    everyone = tuple(range(job.world))
    for group in {everyone, everyone[::-2], everyone[-1:]}:
        if job.rank in group:
            library.run(Call("barrier", group, "sum", None, "u8"), np.empty(0, np.uint8), None)
            for dtype in DTYPES:
                for size in SIZES:
                    moves(library, job.rank, group, dtype, size)
                    reductions(library, job.rank, group, dtype, size, may_refuse=name == "mpi")
    if name != "mpi":
        import torch

        assert not torch.distributed.is_initialized()  # the default group is the script's


def stays_away(library, job, name):
    """Of a collective, then of making a communicator; who waits is told by whom it is kept waiting."""

    def run(group):
        library.run(Call("all_reduce", group, "sum", None, "f32"), np.ones(1000, np.float32), None)

    run((0, 1, 2))
    if job.rank == 2:
        if name == "mpi":
            time.sleep(600)  # the others' end must tear this down
        return
    for group, said in (((0, 1, 2), "not complete"), ((2, 1, 0), "to make its communicator")):
        error = refused(lambda group=group: run(group))
        message = str(error)
        asked = f"all_reduce of f32 over {list(group)}"
        assert message.startswith(f"rank {job.rank} on {job.host}: library `{name}`, {asked}: "), message
        assert (error.rank, error.why, error.missing) == (2, "timeout", (2,)), message
        assert said in message, message
    if name == "mpi":
        sys.stdout.write(f"rank {job.rank} is right\n")
        sys.exit()


def traffic(library, job, name):
    """What a collective lets this rank receive over TCP, in parts of the buffer: its own share, and not a multiple of it."""
    n, elements, slack = job.world, 1_000_000, 0.05
    group, root = tuple(range(n)), n - 1
    shares = {
        "reduce_scatter": (n - 1) / n,
        "all_gather": (n - 1) / n,
        "gather": (n - 1) / n if job.rank == root else 0,
        "scatter": 0 if job.rank == root else 1 / n,
    }
    for what, share in shares.items():
        call = Call(what, group, "sum", root if what in ("gather", "scatter") else None, "f32")
        times_s = []
        for turn in range(6):
            values = np.ones(elements, np.float32)
            job.store.barrier(f"{what}/{turn}", job.rank, n, 20)
            before, began_s = received_bytes(), time.monotonic()
            library.run(call, values, None)
            times_s.append(time.monotonic() - began_s)
            job.store.barrier(f"{what}/{turn}/done", job.rank, n, 20)
            got = (received_bytes() - before) / values.nbytes
        median_ms = sorted(times_s)[len(times_s) // 2] * 1e3
        sys.stdout.write(f"{what} rank {job.rank}: received {got:.2f} of the buffer, {median_ms:.1f} ms\n")
        assert got <= share + slack, f"{what}: received {got:.2f} of the buffer, not {share:.2f}"


def received_bytes():
    """By all TCP connections of this process: `tcpi_bytes_received` of Linux' `struct tcp_info`."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_socket():
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
                    total += struct.unpack_from("Q", known, 128)[0]
    return total


def refused(act):
    try:
        act()
    except Error as error:
        return error
    return None


def refusal(act):
    return str(refused(act) or "")


def inputs(group, dtype, size):
    """Small integers: exact in every type, and so are their sums."""
    return [as_type(np.arange(size) % 11 * (at + 1) + at, dtype) for at in range(len(group))]


def as_type(values, dtype):
    if dtype == "bf16":
        return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.asarray(values, DTYPES[dtype])


def as_numbers(elements, dtype):
    if dtype == "bf16":
        return (elements.astype(np.uint32) << 16).view(np.float32)
    return elements.astype(np.float64)


def moves(library, rank, group, dtype, size):
    n, own = len(group), group.index(rank)
    every = inputs(group, dtype, size)
    root = n - 1

    def run(what, root=None):
        values = every[own].copy()
        library.run(Call(what, group, "sum", None if root is None else group[root], dtype), values, None)
        return values

    gathered = np.concatenate([parts(each, n)[at] for at, each in enumerate(every)])
    assert np.array_equal(run("all_gather"), gathered)
    assert np.array_equal(run("broadcast", root), every[root])
    assert np.array_equal(run("gather", root), gathered if own == root else every[own])
    scattered = [parts(every[root if at == own else own], n)[at] for at in range(n)]
    assert np.array_equal(run("scatter", root), np.concatenate(scattered))
    even = [each[: size // n * n] for each in every]
    into = np.empty_like(even[own])
    library.run(Call("all_to_all", group, "sum", None, dtype), even[own].copy(), into)
    assert np.array_equal(into, np.concatenate([parts(each, n)[own] for each in even]))


def reductions(library, rank, group, dtype, size, *, may_refuse):
    n, own = len(group), group.index(rank)
    every = inputs(group, dtype, size)
    numbers = [as_numbers(each, dtype) for each in every]

    def run(what, reduce, root=None):
        values = every[own].copy()
        library.run(Call(what, group, reduce, None if root is None else group[root], dtype), values, None)
        return values

    def check():
        for reduce, by in (("sum", np.sum), ("min", np.min), ("max", np.max)):
            expected = as_type(by(numbers, axis=0), dtype)
            assert np.array_equal(run("all_reduce", reduce), expected)
            assert np.array_equal(parts(run("reduce_scatter", reduce), n)[own], parts(expected, n)[own])
            reduced = run("reduce_to", reduce, n - 1)
            assert own != n - 1 or np.array_equal(reduced, expected)

    message = refusal(check)
    if message:
        # Not every MPI has 16-bit floats; none may reduce them as something else.
        assert may_refuse, message
        assert dtype in ("f16", "bf16"), message
        assert f"this MPI does not reduce {dtype}\nhint: cast to f32 before, or use library `gloo`" in message


if __name__ == "__main__":
    main()

"""The rows of `hocket bench orders`: what is run on which cluster, in which orders, and what came out."""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from hocket.artefacts.cluster import Cluster
from hocket.bench.orders import beds, cost, mpi, program_cost
from hocket.bench.orders.program_cost import NATIVE, native_program
from hocket.bench.policies import in_bed
from hocket.bench.spearman import spearman
from hocket.demo.bed import open_bed
from hocket.errors import PeerError
from hocket.launch.testbed import wiring
from hocket.ordering.cluster import of_cluster
from hocket.ordering.solve import Algorithm, Request, solve

KILOBYTE = 1 << 10
FLOAT_BYTES = 4
RANDOM_ORDERS, CORRELATED_ORDERS = 3, 40
SEED = 7


class Compared(Struct, frozen=True, kw_only=True):
    """A workload in named orders: `chosen` is what `hocket order` says, `worst` the dearest of all by `cost`.

    `costs_s`: what `cost` says of a call, and `least_cost_s` of the best of all orders; `times_s`: medians over turns, of the
    slowest rank.
    """

    name: str
    what: str
    racks: int
    orders: dict[str, tuple[int, ...]]
    costs_s: dict[str, float]
    least_cost_s: float
    times_s: dict[str, float]
    all_times_s: dict[str, list[float]]
    value: float
    bar: float


class Correlated(Struct, frozen=True, kw_only=True):
    """An algorithm in random orders: rank correlation of costs and times, order by order."""

    name: str
    what: str
    racks: int
    costs_s: list[float]
    times_s: list[float]
    value: float
    bar: float


class Run(Struct, frozen=True, kw_only=True):
    """What ranks do in every order: `turns` times, `calls` in a row."""

    program: str
    algorithm: str
    size_bytes: int
    calls: int
    turns: int


class Workload(Struct, frozen=True, kw_only=True):
    """The run's algorithm is as `cost` knows it, `asked_for` as `hocket order` does.

    `far_first`: its rounds begin between ranks far apart. The value is the time of the order `against` over that of the chosen one.
    """

    what: str
    run: Run
    asked_for: Algorithm
    far_first: bool = False
    against: str
    bar: float


WORKLOADS = {
    "gloo": Workload(
        what="Gloo ring all-reduce, 64 KiB: worst / chosen",
        run=Run(program="gloo", algorithm="gloo_ring", size_bytes=64 * KILOBYTE, calls=20, turns=3),
        asked_for="ring",
        against="worst",
        bar=4.0,
    ),
    "mpi_ring": Workload(
        what="Open MPI ring all-reduce, 64 KiB: given / chosen",
        run=Run(program="mpi", algorithm="ring", size_bytes=64 * KILOBYTE, calls=20, turns=3),
        asked_for="ring",
        against="given",
        bar=1.0,
    ),
    "mpi_doubling": Workload(
        what="Open MPI recursive doubling, 16 KiB: given / chosen",
        run=Run(program="mpi", algorithm="recursive_doubling", size_bytes=16 * KILOBYTE, calls=20, turns=3),
        asked_for="recursive_doubling",
        against="given",
        bar=1.0,
    ),
    "ddp": Workload(
        what="PyTorch DDP over Gloo, step of a model of 256 KiB: given / chosen",
        run=Run(program="ddp", algorithm="gloo_ring", size_bytes=256 * KILOBYTE, calls=10, turns=3),
        asked_for="ring",
        against="given",
        bar=1.2,
    ),
    "lightgbm": Workload(
        what="LightGBM data-parallel, boosting round: given / chosen",
        run=Run(program="lightgbm", algorithm="halving_doubling", size_bytes=4 * KILOBYTE, calls=4, turns=2),
        asked_for="halving_doubling",
        # As `RecursiveHalvingMap::Construct` does (LightGBM, src/network/linker_topo.cpp).
        far_first=True,
        against="given",
        bar=1.3,
    ),
}
ROWS = tuple(
    [f"{name}-{racks}" for name in WORKLOADS for racks in (2, 4)]
    + [f"correlation-{algorithm}-{racks}" for algorithm in NATIVE for racks in (2, 4)]
)
"""The names that `--row` takes: what is run, and the number of racks."""


def measure(names: Sequence[str] = ROWS) -> Iterator[Compared | Correlated]:
    """Rows one by one as they are measured. Raises PeerError when something that was started failed."""
    for name in names:
        what, _, racks = name.rpartition("-")
        algorithm = what.partition("-")[2]
        yield _correlation(name, algorithm, int(racks)) if algorithm else _compare(name, what, int(racks))


def _compare(name: str, what: str, racks: int) -> Compared:
    asked, cluster = WORKLOADS[what], beds.cluster(racks)
    run = asked.run
    chosen = solve(of_cluster(cluster), Request(algorithm=asked.asked_for, far_first=asked.far_first)).order
    best, worst = cost.extremes(run.algorithm, cluster, run.size_bytes)
    orders = {"given": tuple(range(beds.HOSTS)), "chosen": chosen, "worst": worst}
    draws = random.Random(SEED)  # noqa: S311  # an example, not a secret
    for at in range(RANDOM_ORDERS):
        orders[f"random {at + 1}"] = tuple(draws.sample(range(beds.HOSTS), beds.HOSTS))
    listed = list(orders.values())
    times_s = (by_mpi if run.program == "mpi" else by_ranks)(cluster, run, listed)
    by_order = dict(zip(orders, times_s, strict=True))
    medians_s = {order: statistics.median(each) for order, each in by_order.items()}
    least_cost_s, *costs_s = map(
        float, cost.costs_s(run.algorithm, cluster, np.array([best, *listed]), run.size_bytes)
    )
    return Compared(
        name=name,
        what=f"{asked.what}, {racks} racks of {beds.HOSTS // racks}",
        racks=racks,
        orders=orders,
        costs_s=dict(zip(orders, costs_s, strict=True)),
        least_cost_s=least_cost_s,
        times_s=medians_s,
        all_times_s=by_order,
        value=medians_s[asked.against] / medians_s["chosen"],
        bar=asked.bar,
    )


def _correlation(name: str, algorithm: str, racks: int) -> Correlated:
    cluster = beds.cluster(racks)
    draws = random.Random(SEED)  # noqa: S311  # an example, not a secret
    orders = [tuple(draws.sample(range(beds.HOSTS), beds.HOSTS)) for _ in range(CORRELATED_ORDERS)]
    run = Run(program=algorithm, algorithm=algorithm, size_bytes=64 * KILOBYTE, calls=10, turns=2)
    times_s = [statistics.median(each) for each in by_ranks(cluster, run, orders)]
    program = native_program(algorithm, len(cluster.hosts), run.size_bytes)
    costs_s = program_cost.costs_s(program, cluster, np.array(orders), FLOAT_BYTES)
    return Correlated(
        name=name,
        what=f"{algorithm}, 64 KiB: Spearman of cost and time, {CORRELATED_ORDERS} random orders, {racks} racks",
        racks=racks,
        costs_s=list(map(float, costs_s)),
        times_s=times_s,
        value=spearman(costs_s, times_s),
        bar=0.9,
    )


def by_ranks(cluster: Cluster, run: Run, orders: Sequence[Sequence[int]]) -> list[list[float]]:
    """By order, seconds of each turn."""
    argv = [sys.executable, "-m", "hocket.bench.orders.rank", "--workload", run.program]
    argv += ["--orders", json.dumps(orders), "--turns", str(run.turns), "--calls", str(run.calls)]
    argv += ["--size-bytes", str(run.size_bytes)]
    argv += ["--machines", ",".join(wiring.address(at) for at in range(len(cluster.hosts)))]
    slots = [host.name for host in cluster.hosts]
    times_s: list[list[float]] = in_bed(cluster, slots, argv)
    return times_s


def by_mpi(cluster: Cluster, run: Run, orders: Sequence[Sequence[int]]) -> list[list[float]]:
    """By order, seconds of each turn, each of which starts `mpirun` anew."""
    times_s: list[list[float]] = [[] for _ in orders]
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as directory, open_bed(cluster) as bed:
        if not bed.carries_any_program:
            raise PeerError(f"these rows need network namespaces: {bed.remarks[0]}")
        for _ in range(run.turns):
            for order, series in zip(orders, times_s, strict=True):
                series.append(
                    mpi.all_reduce_s(
                        bed,
                        [cluster.hosts[at].name for at in order],
                        algorithm=run.algorithm,
                        size_bytes=run.size_bytes,
                        calls=run.calls,
                        scratch=Path(directory),
                    )
                )
    return times_s

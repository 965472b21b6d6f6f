"""Rows of `python -m benches orders`: workloads, clusters, orders, and results."""

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

from benches.emulated import in_emulation
from benches.orders import clusters, cost, mpi
from benches.orders.native import NATIVE, pieces_of, sizes_of
from benches.orders.scored import Scored, score
from hocket import extras
from hocket.artefacts.cluster import Cluster
from hocket.errors import PeerError
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.solve import Algorithm as Asked
from hocket.planning.ordering.solve import Request, cost_s, solve
from hocket.tools.demo.emulation import open_emulation
from hocket.tools.testbed import example_cluster, wiring

KILOBYTE = 1 << 10
MEGABYTE = 1_000_000
RANDOM_ORDERS = 3
SEED = 7


class Compared(Struct, frozen=True, kw_only=True):
    """A workload in named orders: `chosen` is from `hocket order`, `worst` is the dearest of all by `cost`.

    `costs_s`: costs of a call by `cost`, `least_cost_s` that of the best of all orders; `times_s`: medians over turns, of the
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
    target: float


class Run(Struct, frozen=True, kw_only=True):
    """The work of the ranks in every order: `calls` in a row, `turns` times."""

    program: str
    algorithm: str
    size_bytes: int
    calls: int
    turns: int
    sizes: tuple[int, ...] = ()
    piece_bytes: int = 0
    """Chunk size of Hocket's own programs."""


class Workload(Struct, frozen=True, kw_only=True):
    """The run's algorithm is named as in `cost`, `asked_for` as in `hocket order`.

    `far_first`: rounds begin between ranks far apart. The value is the time of the order `against` over that of the chosen one.
    """

    what: str
    run: Run
    asked_for: Asked
    far_first: bool = False
    against: str
    target: float


WORKLOADS = {
    "gloo": Workload(
        what="Gloo ring all-reduce, 64 KiB: worst / chosen",
        run=Run(program="gloo", algorithm="gloo_ring", size_bytes=64 * KILOBYTE, calls=20, turns=3),
        asked_for="ring",
        against="worst",
        target=4.0,
    ),
    "mpi_ring": Workload(
        what="Open MPI ring all-reduce, 64 KiB: given / chosen",
        run=Run(program="mpi", algorithm="ring", size_bytes=64 * KILOBYTE, calls=20, turns=3),
        asked_for="ring",
        against="given",
        target=1.0,
    ),
    "mpi_doubling": Workload(
        what="Open MPI recursive doubling, 16 KiB: given / chosen",
        run=Run(program="mpi", algorithm="recursive_doubling", size_bytes=16 * KILOBYTE, calls=20, turns=3),
        asked_for="recursive_doubling",
        against="given",
        target=1.0,
    ),
    "ddp": Workload(
        what="PyTorch DDP over Gloo, step of a model of 256 KiB: given / chosen",
        run=Run(program="ddp", algorithm="gloo_ring", size_bytes=256 * KILOBYTE, calls=10, turns=3),
        asked_for="ring",
        against="given",
        target=1.2,
    ),
    "lightgbm": Workload(
        what="LightGBM data-parallel, boosting round: given / chosen",
        run=Run(program="lightgbm", algorithm="halving_doubling", size_bytes=4 * KILOBYTE, calls=4, turns=2),
        asked_for="halving_doubling",
        # See `RecursiveHalvingMap::Construct` (LightGBM, src/network/linker_topo.cpp).
        far_first=True,
        against="given",
        target=1.3,
    ),
}
DEMO = "demo"
"""Row of the demo's own cluster, with hosts in turn: a ring in the given order against the chosen one."""
DEMO_BYTES, DEMO_TARGET = 12 * MEGABYTE, 2.2
ROWS = tuple(
    [f"{name}-{racks}" for name in WORKLOADS for racks in (2, 4)]
    + [DEMO]
    + [f"{algorithm}-{network}" for network in clusters.BY_RATES for algorithm in NATIVE]
    + [f"{algorithm}-latency{racks}" for racks in (2, 4) for algorithm in NATIVE]
)
"""Names for `--row`: the workload, and the cluster: `2` or `4` racks with latency, or one of `clusters`."""


def measure(names: Sequence[str] = ROWS) -> Iterator[Compared | Scored]:
    """Yield rows as they are measured. Raises PeerError if a started process failed."""
    for name in names:
        what, _, network = name.rpartition("-")
        if name == DEMO:
            yield _demo()
        elif what in WORKLOADS:
            yield _compare(name, what, int(network))
        else:
            yield _score(name, what, network)


def _score(name: str, algorithm: str, network: str) -> Scored:
    latency = network.startswith("latency")
    cluster = (
        clusters.latency(int(network.removeprefix("latency"))) if latency else clusters.BY_RATES[network]()
    )
    size_bytes = 64 * KILOBYTE if latency else 4 * MEGABYTE

    def times_s(orders: Sequence[Sequence[int]], turns: int) -> list[float]:
        run = Run(
            program=algorithm,
            algorithm=algorithm,
            size_bytes=size_bytes,
            calls=10 if latency else 1,
            turns=turns,
            sizes=sizes_of(algorithm, cluster),
            piece_bytes=pieces_of(cluster),
        )
        return [statistics.median(each) for each in by_ranks(cluster, run, orders)]

    return score(name, cluster, algorithm, size_bytes, times_s)


def _demo() -> Compared:
    cluster = example_cluster("two-racks")
    matrix, asked = of_cluster(cluster), Request(algorithm="ring", size_bytes=DEMO_BYTES)
    given = tuple(range(len(cluster.hosts)))
    orders = {"given": given, "chosen": solve(matrix, asked).order}
    run = Run(
        program="ring",
        algorithm="ring",
        size_bytes=DEMO_BYTES,
        calls=5,
        turns=3,
        piece_bytes=pieces_of(cluster),
    )
    by_order = dict(zip(orders, by_ranks(cluster, run, list(orders.values())), strict=True))
    medians_s = {order: statistics.median(each) for order, each in by_order.items()}
    costs_s = {name: cost_s(matrix, asked, order) for name, order in orders.items()}
    return Compared(
        name=DEMO,
        what="Hocket's own ring, 12 MB, the demo's cluster: given / chosen",
        racks=len(cluster.racks),
        orders=orders,
        costs_s=costs_s,
        least_cost_s=costs_s["chosen"],
        times_s=medians_s,
        all_times_s=by_order,
        value=medians_s["given"] / medians_s["chosen"],
        target=DEMO_TARGET,
    )


def _compare(name: str, what: str, racks: int) -> Compared:
    asked, cluster = WORKLOADS[what], clusters.latency(racks)
    run = asked.run
    chosen = solve(of_cluster(cluster), Request(algorithm=asked.asked_for, far_first=asked.far_first)).order
    best, worst = cost.extremes(run.algorithm, cluster, run.size_bytes)
    orders = {"given": tuple(range(clusters.HOSTS)), "chosen": chosen, "worst": worst}
    draws = random.Random(SEED)  # noqa: S311  # an example, not a secret
    for at in range(RANDOM_ORDERS):
        orders[f"random {at + 1}"] = tuple(draws.sample(range(clusters.HOSTS), clusters.HOSTS))
    listed = list(orders.values())
    times_s = (by_mpi if run.program == "mpi" else by_ranks)(cluster, run, listed)
    by_order = dict(zip(orders, times_s, strict=True))
    medians_s = {order: statistics.median(each) for order, each in by_order.items()}
    least_cost_s, *costs_s = map(
        float, cost.costs_s(run.algorithm, cluster, np.array([best, *listed]), run.size_bytes)
    )
    return Compared(
        name=name,
        what=f"{asked.what}, {racks} racks of {clusters.HOSTS // racks}",
        racks=racks,
        orders=orders,
        costs_s=dict(zip(orders, costs_s, strict=True)),
        least_cost_s=least_cost_s,
        times_s=medians_s,
        all_times_s=by_order,
        value=medians_s[asked.against] / medians_s["chosen"],
        target=asked.target,
    )


def by_ranks(cluster: Cluster, run: Run, orders: Sequence[Sequence[int]]) -> list[list[float]]:
    """Seconds of each turn by order, on ranks."""
    extras.need("torch", "this benchmark")
    argv = [sys.executable, "-m", "benches.orders.rank", "--workload", run.program]
    argv += ["--orders", json.dumps(orders), "--turns", str(run.turns), "--calls", str(run.calls)]
    argv += ["--size-bytes", str(run.size_bytes), "--sizes", json.dumps(run.sizes)]
    argv += ["--piece-bytes", str(run.piece_bytes)]
    argv += ["--machines", ",".join(wiring.address(at) for at in range(len(cluster.hosts)))]
    slots = [host.name for host in cluster.hosts]
    interface = "all" if any(host.cards_bit_per_s for host in cluster.hosts) else None
    times_s: list[list[float]] = in_emulation(cluster, slots, argv, interface=interface)
    return times_s


def by_mpi(cluster: Cluster, run: Run, orders: Sequence[Sequence[int]]) -> list[list[float]]:
    """Seconds of each turn by order, with MPI; each turn starts `mpirun` anew."""
    times_s: list[list[float]] = [[] for _ in orders]
    with (
        tempfile.TemporaryDirectory(prefix="hocket-bench-") as directory,
        open_emulation(cluster) as emulation,
    ):
        if not emulation.carries_any_program:
            raise PeerError(f"these rows need network namespaces: {emulation.remarks[0]}")
        for _ in range(run.turns):
            for order, series in zip(orders, times_s, strict=True):
                series.append(
                    mpi.all_reduce_s(
                        emulation,
                        [cluster.hosts[at].name for at in order],
                        algorithm=run.algorithm,
                        size_bytes=run.size_bytes,
                        calls=run.calls,
                        scratch=Path(directory),
                    )
                )
    return times_s

"""Predicted step times against the testbed's: emulated clusters, real executors, computation that sleeps.

Every configuration is a plan (algorithm and codec) on a cluster; a step launches each bucket when its gradients would be ready and
ends when all are reduced. The simulator uses the cluster file, the costs of the machine and one constant, `networks.TRUNK_INCAST`,
which was fitted to the clusters of FITTED_ON (`fit` repeats this). The other clusters are the test.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from benches.emulated import hosts
from benches.spearman import spearman
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce, Codec, Plan
from hocket.artefacts.profile import Gradient, Profile
from hocket.errors import PeerError
from hocket.job.store.interfaces import ALL
from hocket.planning.buckets import buckets, plan_of, with_codec
from hocket.planning.links import link_graph
from hocket.settings import Settings
from hocket.tools.demo.emulation import open_emulation, ranks, run_ranks
from hocket.tools.simulation import flow
from hocket.tools.simulation.fidelity import predict
from hocket.tools.simulation.networks import from_cluster

STEPS = 7
BUCKET_ELEMENTS = 250_000
BUCKETS = 4
BUCKETS_OF_MORE = 13
"""Number of buckets for 13 MB: smaller transfers do not show the effects of long ones on shared links."""
BACKWARD_S = 0.04
TIMEOUT_S = 60.0
MEGABIT = 1e6

CLUSTERS: dict[str, Cluster] = {
    "4 hosts, 100 Mbit/s": hosts([100 * MEGABIT] * 4),
    "4 hosts, 1 Gbit/s": hosts([1000 * MEGABIT] * 4),
    "6 hosts, 200 Mbit/s": hosts([200 * MEGABIT] * 6),
    "8 hosts, 300 Mbit/s": hosts([300 * MEGABIT] * 8),
    "2 racks of 2, 1 Gbit/s, trunk 100 Mbit/s": hosts([1000 * MEGABIT] * 4, 2, 100 * MEGABIT),
    "2 racks of 4, 500 Mbit/s, trunk 200 Mbit/s": hosts([500 * MEGABIT] * 8, 2, 200 * MEGABIT),
    "3 racks of 2, 500 Mbit/s, trunk 200 Mbit/s": hosts([500 * MEGABIT] * 6, 3, 200 * MEGABIT),
    "3 racks of 3, 1 Gbit/s, trunk 300 Mbit/s": hosts([1000 * MEGABIT] * 9, 3, 300 * MEGABIT),
    "3 racks of 2, 500 Mbit/s, trunk 200 Mbit/s, 13 MB": hosts([500 * MEGABIT] * 6, 3, 200 * MEGABIT),
}
MORE = frozenset({"3 racks of 2, 500 Mbit/s, trunk 200 Mbit/s, 13 MB"})
"""Clusters with BUCKETS_OF_MORE buckets."""

FITTED_ON = (
    "2 racks of 2, 1 Gbit/s, trunk 100 Mbit/s",
    "2 racks of 4, 500 Mbit/s, trunk 200 Mbit/s",
)
"""Clusters for fitting, which have trunks: other clusters do not depend on the constant."""

INCASTS = tuple(round(0.9 + 0.01 * step, 2) for step in range(11))
"""Values that `fit` tries."""


class Row(Struct, frozen=True, kw_only=True):
    """One configuration. `error`: relative error of the flow prediction against the measured median."""

    cluster: str
    plan: str
    measured_s: float
    flow_s: float
    closed_form_s: float
    error: float


class Scores(Struct, frozen=True, kw_only=True):
    """A summary of some rows: errors, correctness of the ranking, and the cost of following the prediction on the worst cluster."""

    configurations: int
    median_error: float
    worst_error: float
    spearman: float
    regret: float
    closed_form_median_error: float


class Agreement(Struct, frozen=True, kw_only=True):
    """All rows, by cluster, and a summary of the clusters that were not used for fitting (None: none were measured). A Spearman
    over clusters of different speed would be high whatever the order of plans on each."""

    rows: tuple[Row, ...]
    clusters: dict[str, Scores]
    held_out: Scores | None


def profile(cluster: str) -> Profile:
    """Profile of buckets that become ready evenly through backward."""
    count = BUCKETS_OF_MORE if cluster in MORE else BUCKETS
    return Profile(
        model="sleep",
        world=1,
        steps=0,
        forward_s=0.0,
        backward_s=BACKWARD_S,
        optimizer_s=0.0,
        step_s=BACKWARD_S,
        gradients=tuple(
            Gradient(
                name=f"g{at}",
                shape=(BUCKET_ELEMENTS,),
                dtype="f32",
                ready_s=BACKWARD_S * (at + 1) / count,
                needed_s=0.0,
            )
            for at in range(count)
        ),
    )


def plans(name: str) -> Iterator[Plan]:
    """Ring, two-level, direct, tree and parameter servers on half of the ranks, each with and without f16 between hosts.

    Groups of two-level are the racks, or two halves without racks.
    """
    cluster, made_for = CLUSTERS[name], profile(name)
    world = len(cluster.hosts)
    graph = link_graph(cluster, world)
    racks = tuple(Counter(host.rack for host in cluster.hosts).values())
    groups = racks if len(racks) > 1 else (world // 2, world - world // 2)
    kinds: list[tuple[str, tuple[int, ...]]] = [
        ("ring", ()),
        ("two_level", groups),
        ("direct", ()),
        ("double_binary_tree", ()),
        ("parameter_server", (world // 2,)),
    ]
    codecs: tuple[Codec, ...] = ("none", "f16")
    for algorithm, sizes in kinds:
        for codec in codecs:
            route = AllReduce(algorithm=algorithm, sizes=sizes)
            made = buckets([[each] for each in made_for.gradients], route, range(world))
            if codec != "none":
                made = tuple(with_codec(bucket, codec, graph.remote_pairs()) for bucket in made)
            label = algorithm.replace("_", "-") + ("" if codec == "none" else " f16")
            yield plan_of(made, world, label=label)


def measure(clusters: Sequence[str] | None = None) -> list[Row]:
    """Measure and predict every plan on these clusters (all when None). Raises TestbedError, PeerError."""
    rows = []
    for name in clusters or CLUSTERS:
        cluster = CLUSTERS[name]
        considered, made_for = list(plans(name)), profile(name)
        found = steps(cluster, considered, made_for, STEPS)
        for plan, measured_s in zip(considered, map(statistics.median, found), strict=True):
            flow_s, closed_s = (
                predict(plan, cluster, made_for, fidelity=fidelity, shaped=True).step_s
                for fidelity in ("flow", "closed-form")
            )
            rows.append(
                Row(
                    cluster=name,
                    plan=plan.label,
                    measured_s=measured_s,
                    flow_s=flow_s,
                    closed_form_s=closed_s,
                    error=flow_s / measured_s - 1,
                )
            )
    return rows


def agreement(rows: Sequence[Row]) -> Agreement:
    clusters: dict[str, list[Row]] = {}
    for row in rows:
        clusters.setdefault(row.cluster, []).append(row)
    held_out = [row for row in rows if row.cluster not in FITTED_ON]
    return Agreement(
        rows=tuple(rows),
        clusters={name: _scores([own]) for name, own in clusters.items()},
        held_out=_scores([own for name, own in clusters.items() if name not in FITTED_ON])
        if held_out
        else None,
    )


def fit(rows: Sequence[Row]) -> dict[float, float]:
    """Mean absolute error of the rows of FITTED_ON by each of INCASTS. The constant is the value with the least."""
    measured_s = {(row.cluster, row.plan): row.measured_s for row in rows if row.cluster in FITTED_ON}
    errors: dict[float, float] = {}
    for incast in INCASTS:
        off = [
            abs(_with_incast(plan, name, incast) / measured_s[name, plan.label] - 1)
            for name in FITTED_ON
            for plan in plans(name)
            if (name, plan.label) in measured_s
        ]
        errors[incast] = statistics.mean(off)
    return errors


def _with_incast(plan: Plan, name: str, incast: float) -> float:
    network = from_cluster(CLUSTERS[name], plan.world, shaped=True, trunk_incast=incast)
    return flow.predict(plan, network, profile(name)).outcome.step_s


def _scores(clusters: Sequence[Sequence[Row]]) -> Scores:
    rows = [row for own in clusters for row in own]
    regrets = []
    for own in clusters:
        chosen = min(own, key=lambda row: row.flow_s)
        regrets.append(chosen.measured_s / min(row.measured_s for row in own) - 1)
    return Scores(
        configurations=len(rows),
        median_error=statistics.median(abs(row.error) for row in rows),
        worst_error=max(abs(row.error) for row in rows),
        # The worst cluster's, as the order of plans matters within a cluster.
        spearman=min(
            spearman([row.flow_s for row in own], [row.measured_s for row in own]) for own in clusters
        ),
        regret=max(regrets),
        closed_form_median_error=statistics.median(
            abs(row.closed_form_s / row.measured_s - 1) for row in rows
        ),
    )


def steps(cluster: Cluster, considered: Sequence[Plan], made_for: Profile, count: int) -> list[list[float]]:
    """Seconds of `count` steps of each plan, one plan after the other on one testbed. PeerError, TestbedError."""
    with (
        tempfile.TemporaryDirectory(prefix="hocket-predict-") as folder,
        open_emulation(cluster) as emulation,
    ):
        if not emulation.carries_any_program:
            raise PeerError(f"the testbed needs network namespaces: {emulation.remarks[0]}")
        directory = Path(folder)
        for at, plan in enumerate(considered):
            files.write(directory / f"{at}.json", plan)
        files.write(directory / "profile.json", made_for)
        argv = [
            sys.executable,
            "-m",
            "benches.predict.rank",
            str(directory),
            str(len(considered)),
            str(count),
        ]
        cards = any(host.cards_bit_per_s for host in cluster.hosts)
        settings = Settings(timeout_s=TIMEOUT_S, start_timeout_s=TIMEOUT_S, interface=ALL if cards else None)
        slots = [host.name for host in cluster.hosts]
        run_ranks(emulation, slots[0], ranks(emulation, slots, argv), settings)
        found: list[list[float]] = json.loads((directory / "steps.json").read_text())
    return found

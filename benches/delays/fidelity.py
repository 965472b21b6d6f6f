"""Row `fidelity` of `python -m benches delays`: schedules in the flow engine against the same on real ranks.

Four clusters times nine schedules, merged and late by different amounts. Computation is a wait, executors and links are real. The
simulator uses the cluster file and the result of `hocket profile`. Both sides leave a trace, in which the order of launches is
compared.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from benches.delays import cases
from benches.emulated import hosts, in_emulation, profiled
from benches.row import Row
from benches.spearman import spearman
from hocket.artefacts import files, trace
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Due, Plan, Schedule, Turn
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT
from hocket.artefacts.trace import Kind, Recording, Trace
from hocket.planning import search
from hocket.tools.simulation import flow, record
from hocket.tools.simulation.networks import from_cluster

MEGABIT = 1e6
RANK = (sys.executable, "-m", "benches.delays.fidelity_rank")

CLUSTERS = {
    "4 hosts, 540 Mbit/s": hosts([540 * MEGABIT] * 4),
    "4 hosts, 300 Mbit/s": hosts([300 * MEGABIT] * 4),
    "2 hosts of 600, 2 of 350 Mbit/s": hosts([600 * MEGABIT] * 2 + [350 * MEGABIT] * 2),
    "2 racks of 2, 1 Gbit/s, trunk 400 Mbit/s": hosts([1000 * MEGABIT] * 4, 2, 400 * MEGABIT),
}
"""Clusters on which a ring of the transformer's gradients takes 1.4 to 2.5 times as long as its computation."""

SCHEDULES = (
    (1, 0, "barrier"),
    (1, 0, "gates"),
    (1, 1, "barrier"),
    (2, 0, "barrier"),
    (2, 1, "barrier"),
    (2, 2, "barrier"),
    (3, 0, "barrier"),
    (3, 1, "barrier"),
    (3, 2, "barrier"),
)
"""Merged iterations, delay of an update in iterations, and overlap; a bucket's two slots exclude (1, 2)."""

ALIKE = 0.01
"""Fraction of an iteration's computation below which differences do not count in ranks."""

MEDIAN_MAX, WORST_MAX, SPEARMAN_MIN, REGRET_MAX = 0.05, 0.15, 0.95, 0.05

Launches = list[tuple[int, int]]
"""A rank's launches by time: the bucket, and its earlier launches."""


class Compared(NamedTuple):
    """One schedule on one cluster: seconds of an iteration, and whether ranks launched as simulated."""

    cluster: str
    schedule: str
    simulated_s: float
    measured_s: float
    alike: bool

    @property
    def error(self) -> float:
        """Error relative to the measured iteration."""
        return self.simulated_s / self.measured_s - 1


def rows() -> Iterator[Row]:
    """Iteration of each schedule, and errors of prediction. Raises PeerError if there are no network namespaces."""
    found: list[Compared] = []
    for name in CLUSTERS:
        for each in compared(name):
            what = f"{name}, {each.schedule}: iteration, simulated {each.simulated_s * 1e3:.0f} ms ({each.error:+.1%})"
            yield _row(what, each.measured_s * 1e3, unit="ms")
            found.append(each)
    errors = [abs(each.error) for each in found]
    yield _row("launches in the simulated order", sum(each.alike for each in found), len(found), least=True)
    yield _row("median error", median(errors), MEDIAN_MAX)
    yield _row("worst error", max(errors), WORST_MAX)
    clusters = [[each for each in found if each.cluster == name] for name in CLUSTERS]
    # The worst cluster's: the order of schedules matters where one is chosen.
    yield _row("Spearman, of the worst cluster", min(map(_spearman, clusters)), SPEARMAN_MIN, least=True)
    yield _row("regret, on the worst cluster", max(map(_regret, clusters)), REGRET_MAX)


def compared(name: str) -> Iterator[Compared]:
    """Run all schedules of the planner's synchronous plan on a cluster, one job each."""
    cluster, layers = CLUSTERS[name], cases.transformer()
    profile = _profiled(cluster, layers)
    considered = search.considered(cluster, profile, cases.WORLD, promise=EXACT)
    plain = considered.explained(considered.best)
    for merge, late, overlap in SCHEDULES:
        schedule = scheduled(merge, late, len(plain.buckets), gates=overlap == "gates")
        plan = msgspec.structs.replace(plain, schedule=schedule, promise="uncorrected")
        with tempfile.TemporaryDirectory(prefix="hocket-fidelity-") as directory:
            simulated_s, simulated = _simulated(plan, cluster, profile, Path(directory) / "simulated")
            measured_s, measured = _measured(plan, cluster, layers, Path(directory))
            alike = all(
                agree(launches(simulated, rank), launches(measured, rank)) for rank in range(plan.world)
            )
        label = f"{merge} merged, {late} late" + (", gates" if overlap == "gates" else "")
        yield Compared(name, label, simulated_s, measured_s, alike)


def scheduled(merge: int, late: int, buckets: int, *, gates: bool = False) -> Schedule:
    """Make a schedule with the same turns for all buckets; without turns if nothing is merged or late."""
    if merge == 1 and not late:
        return Schedule(overlap="gates" if gates else "barrier")
    turn = Turn(first=0, last=merge - 1, due=Due(iteration=merge - 1 + late))
    turns = ((turn,),) * buckets
    return Schedule(period=merge, turns=turns, rate="linear" if merge > 1 else "one", delay_max=late)


def launches(of: Trace | Recording, rank: int) -> Launches:
    """Launches of buckets' programs, in the order in which the rank asked for them."""
    bucket_of = {each.program: each.bucket for each in of.run.programs if each.bucket is not None}
    records = of.records(rank)
    own = records[records["kind"] == Kind.INSTANCE]
    own = own[np.argsort(own["ready_ns"], kind="stable")]
    return [
        (bucket_of[int(each["program"])], int(each["instance"]))
        for each in own
        if int(each["program"]) in bucket_of
    ]


def _simulated(plan: Plan, cluster: Cluster, profile: Profile, directory: Path) -> tuple[float, Trace]:
    network = from_cluster(cluster, plan.world, shaped=True)
    run = flow.predict(plan, network, profile, recorded=True)
    record.write(
        directory,
        plan=plan,
        profile=profile,
        network=network,
        simulation=run.simulation,
        parts=run.parts,
    )
    return run.outcome.step_s, trace.read(directory)


def _profiled(cluster: Cluster, layers: Profile) -> Profile:
    with tempfile.TemporaryDirectory(prefix="hocket-fidelity-") as directory:
        files.write(Path(directory) / "profile.json", layers)
        return profiled(cluster, [*RANK, directory])


def _measured(plan: Plan, cluster: Cluster, layers: Profile, directory: Path) -> tuple[float, Trace]:
    files.write(directory / "plan.json", plan)
    files.write(directory / "profile.json", layers)
    slots = [host.name for host in cluster.hosts]
    measured_s = in_emulation(cluster, slots, [*RANK, str(directory)], trace=directory / "measured")
    return float(measured_s), trace.read(directory / "measured")


def agree(simulated: Launches, measured: Launches) -> bool:
    """Compare launches up to the end of the shorter list: numbers of iterations differ, and training ends with a flush."""
    common = min(len(simulated), len(measured))
    return common > 0 and simulated[:common] == measured[:common]


def _spearman(own: list[Compared]) -> float:
    computed_s = cases.FORWARD_S + cases.BACKWARD_S
    levels = [
        [round(each.simulated_s / (ALIKE * computed_s)) for each in own],
        [round(each.measured_s / (ALIKE * computed_s)) for each in own],
    ]
    return spearman(*levels)


def _regret(own: list[Compared]) -> float:
    chosen = min(own, key=lambda each: each.simulated_s)
    return chosen.measured_s / min(each.measured_s for each in own) - 1


def _row(what: str, value: float, target: float | None = None, *, least: bool = False, unit: str = "") -> Row:
    return Row(name="fidelity", what=what, value=value, target=target, least=least, unit=unit)

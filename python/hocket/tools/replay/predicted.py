"""Replay of a trace in virtual time: a plan's programs at their recorded times, or messages; also with other workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from hocket import _native
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Plan
from hocket.artefacts.trace import Recording, Trace
from hocket.errors import UsageError
from hocket.planning.rescaled import rescaled
from hocket.planning.routes import known, name
from hocket.tools.replay import simulated
from hocket.tools.replay.aggregated import aggregated
from hocket.tools.replay.drawn import gaps_drawn, steps_drawn
from hocket.tools.replay.of_dlc import of_dlc_files
from hocket.tools.replay.run import Replayed, compared, recording_of, traffic_in
from hocket.tools.replay.schedule import Schedule, schedule
from hocket.tools.replay.workers import with_workers
from hocket.tools.simulation import flow
from hocket.tools.simulation.aggregation import Switch
from hocket.tools.simulation.conditions import Conditions, Costs
from hocket.tools.simulation.flow import Prepared
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.simulation.shapes import Shape
from hocket.tools.simulation.wired import Wired


def predicted(
    paths: Sequence[Path],
    where: Cluster | Shape | Wired,
    *,
    workers: int | None = None,
    computation: float = 1.0,
    conditions: Conditions | None = None,
    drawn: bool = False,
    aggregate: Switch | None = None,
    shaped: bool = False,
) -> Replayed:
    """Predict the slowest worker's step times of a trace directory, or of the files of a DLC trace, on any network.

    `workers`: number of workers; each computes like a recorded one. Every gap is multiplied by `computation`. `drawn`: gaps are
    drawn by the conditions' seed from those recorded, instead of repeated. `aggregate`: what the switch of each rack sums with.

    Raises ArtefactError when the trace cannot be replayed, UsageError when it lacks information for that many workers
    or the cluster has too few slots, SimulationError when nothing moves any more.
    """
    seed = (conditions or Conditions()).seed
    recording = recording_of(paths)
    if recording is not None and known(recording.run.plan):
        if aggregate is not None:
            raise UsageError(
                "switches sum the pushes of a trace of parameter servers\n"
                "hint: `hocket simulate plan --aggregate` sums a plan's buckets"
            )
        recorded = schedule(recording)
        plan = _plan(recording, recorded.plan, workers, where)
        network = _network(where, plan.world, shaped=shaped)
        launched = steps_drawn(recorded, plan.world, seed) if drawn else recorded
        steps_s = predict(launched, plan, network, conditions=conditions, computation=computation)
        return compared(recorded.slowest_s(), steps_s, repeat=1)
    traffic = of_dlc_files(paths) if recording is None else traffic_in(recording)
    if workers not in (None, traffic.workers):
        if recording is not None and recording.run.roles is None:
            raise UsageError(
                f"the trace is not of a plan: what others than its {recording.run.world} workers would send is not in it\n"
                "hint: record a run of `--plan`"
            )
        traffic = with_workers(traffic, workers)
    traffic = gaps_drawn(traffic, seed) if drawn else traffic
    network = _network(where, len(traffic.nodes), shaped=shaped)
    costs = Costs()
    switches: tuple[int, ...] = ()
    if aggregate is not None:
        summed = aggregated(traffic, network, aggregate, seed)
        traffic, network, switches = summed.traffic, summed.network, summed.switches
        costs = Costs(rendezvous=False)
    steps_s = simulated.predict(
        traffic, network, costs=costs, conditions=conditions, computation=computation, switches=switches
    )
    return compared(traffic.recorded_s, steps_s, repeat=1)


def predict(
    recorded: Schedule,
    plan: Plan,
    network: Network,
    *,
    costs: Costs | None = None,
    conditions: Conditions | None = None,
    computation: float = 1.0,
) -> tuple[float, ...]:
    """Seconds of each step of the slowest rank.

    With `W` recorded ranks, rank `r` of `plan` launches and rests like rank `r mod W`.

    Raises UsageError when plan and network do not fit, SimulationError when nothing moves any more.
    """
    costs = costs or Costs()
    conditions = conditions or Conditions()
    _check_places(plan, network)
    prepared = Prepared.of(plan)
    native, compiled = prepared.on(network, costs)
    slow = dict(conditions.slow)
    pace = [computation * slow.get(rank, 1.0) for rank in range(plan.world)]
    count = len(recorded.ranks)
    phases: list[tuple[list[tuple[int, int, list[float]]], list[float], list[float]]] = []
    for steps in zip(*recorded.ranks, strict=True):
        after_s = [dict(step.launches) for step in steps]
        launches = [
            (
                prepared.place[index],
                bucket.priority,
                [after_s[rank % count][index] * pace[rank] for rank in range(plan.world)],
            )
            for index, bucket in enumerate(plan.buckets)
        ]
        phases.append((launches, [], [steps[rank % count].tail_s * pace[rank] for rank in range(plan.world)]))
    simulation = flow.run(
        native,
        compiled,
        _native.SimulatedJob.phases(plan.world, phases),
        network,
        rendezvous=costs.rendezvous,
        conditions=conditions,
        recorded=False,
    )
    ends_s = [[0.0] * plan.world, *simulation.phase_ends_s]
    return tuple(
        max(end_s - begun_s for begun_s, end_s in zip(*step, strict=True)) for step in pairwise(ends_s)
    )


def _network(where: Cluster | Shape | Wired, world: int, *, shaped: bool) -> Network:
    if isinstance(where, Cluster):
        return from_cluster(where, world, shaped=shaped)
    return where.network(world)


def _plan(
    recording: Trace | Recording, plan: Plan, workers: int | None, where: Cluster | Shape | Wired
) -> Plan:
    if workers in (None, plan.world):
        return plan
    if not isinstance(where, Cluster):
        raise UsageError(
            f"the trace's plan is for {plan.world} ranks, and its rules for others need hosts and racks\nhint: give a cluster file"
        )
    run = recording.run
    return rescaled(plan, workers, where, made_for=run.cluster, hosts=run.hosts)


def _check_places(plan: Plan, network: Network) -> None:
    hosts = len(set(network.hosts))
    if hosts > 1 and any(name(bucket.route) == "in_place" for bucket in plan.buckets):
        raise UsageError(
            f"the trace's plan reduces in memory that all ranks share: {plan.world} ranks are on {hosts} hosts of the cluster\n"
            "hint: make a plan for this cluster with `hocket plan`, and simulate it"
        )

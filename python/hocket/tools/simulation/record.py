"""Writer of a simulated run as a trace directory, which `hocket report` and all other readers treat like a real one.

Times are nanoseconds since the start in virtual time; the clocks of all ranks agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hocket import _native
from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.trace import Kind, LoadedProgram, Recording, RunInfo
from hocket.errors import ArtefactError
from hocket.tools.simulation.on_cards import Part, launched, uses_cards

NS = 1e9


def write(
    directory: Path,
    *,
    plan: Plan,
    profile: Profile,
    network: Network,
    simulation: _native.Simulation,
    parts: Sequence[Part],
    cluster: Cluster | None = None,
) -> None:
    """Write `run.json` and every rank's records. `parts`: `flow.Run.parts`. Raises ArtefactError when it cannot be written."""
    striped = uses_cards(plan.buckets)
    names = [host.name for host in cluster.hosts] if cluster else None
    info = RunInfo(
        world=plan.world,
        hosts=tuple(names[host] if names else f"host {host}" for host in network.hosts),
        script=f"simulated: {plan.label}",
        plan=plan,
        cluster=cluster,
        profile=profile,
        programs=tuple(
            LoadedProgram(
                program=index,
                label=f"bucket.{part.bucket} on card {part.card}" if striped else f"bucket.{part.bucket}",
                bucket=part.bucket,
                bytes=_bytes_of(plan, part),
            )
            for index, part in enumerate(parts)
        ),
    )
    run_as = launched(plan, parts)
    ends_s = simulation.phase_ends_s
    launches = _native.schedule_launches(run_as.schedule, len(parts), len(ends_s))
    programs, instances = np.array(launches).reshape(-1, 2).T
    ranks = []
    for rank in range(plan.world):
        ops = np.frombuffer(simulation.records(rank), list(trace.FIELDS)).copy()
        # Launches are numbered through all steps: a program is a part of a bucket, an instance a launch of it.
        launch = ops["program"].copy()
        ops["program"], ops["instance"] = programs[launch], instances[launch]
        own = np.concatenate([ops, _instances(ops, plan, parts), _spans(rank, ends_s, profile)])
        ranks.append(own[np.argsort(own["end_ns"], kind="stable")])
    trace.write(directory, Recording(info, tuple(ranks)))
    if not simulation.launches_s:
        raise ArtefactError(f"{directory}: nothing was launched")


def _bytes_of(plan: Plan, part: Part) -> int:
    bucket = plan.buckets[part.bucket]
    return round(bucket.elements * ITEM_BYTES[bucket.dtype] * part.share)


def _instances(ops: trace.Records, plan: Plan, parts: Sequence[Part]) -> trace.Records:
    """Return the span of each launch, from its first ready op to its last end."""
    rows = []
    for key in np.unique(ops[["program", "instance"]]):
        mine = ops[(ops["program"] == key["program"]) & (ops["instance"] == key["instance"])]
        row = _row(
            Kind.INSTANCE, int(mine["ready_ns"].min()), int(mine["end_ns"].max()), int(key["instance"])
        )
        row["program"], row["bytes"] = key["program"], _bytes_of(plan, parts[int(key["program"])])
        rows.append(row)
    return np.concatenate(rows) if rows else np.empty(0, list(trace.FIELDS))


def _spans(rank: int, ends_s: list[list[float]], profile: Profile) -> trace.Records:
    """Return the spans of forward, backward, waiting, optimizer and the whole of each step."""
    rows = []
    begin_s = 0.0
    rest_s = max(0.0, profile.step_s - profile.forward_s - profile.backward_s)
    for step, ends in enumerate(ends_s):
        end_s = ends[rank]
        moments_s = [begin_s, begin_s + profile.forward_s]
        moments_s += [moments_s[-1] + profile.backward_s, end_s - rest_s, end_s]
        moments = [round(moment * NS) for moment in moments_s]
        kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.WAIT, Kind.OPTIMIZER)
        rows += [
            _row(kind, a, max(a, b), step) for kind, a, b in zip(kinds, moments, moments[1:], strict=False)
        ]
        rows.append(_row(Kind.STEP, moments[0], moments[-1], step))
        begin_s = end_s
    return np.concatenate(rows)


def _row(kind: Kind, start_ns: int, end_ns: int, instance: int) -> trace.Records:
    row = np.zeros(1, list(trace.FIELDS))
    row["ready_ns"], row["start_ns"], row["end_ns"] = start_ns, start_ns, end_ns
    row["instance"], row["kind"], row["peer"] = instance, kind, trace.NO_PEER
    return row

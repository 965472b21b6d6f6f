"""Steps of a plan in virtual time on one network: step time, buckets, busiest links; on request as a trace directory."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Gradient, Profile
from hocket.cli.shared.output import publish
from hocket.errors import UsageError
from hocket.planning.buckets import sizes_of
from hocket.planning.search import neutral_profile
from hocket.tools.simulation import aggregation, flow
from hocket.tools.simulation import fidelity as levels
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.fidelity import Fidelity
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.simulation.outcome import Outcome
from hocket.tools.simulation.sweep import changed

LINKS_SHOWN = 8


def run(
    path: Path,
    cluster: Cluster,
    profile_path: Path | None,
    conditions: Conditions,
    *,
    bandwidth_bit_per_s: float | None,
    fidelity: Fidelity,
    steps: int,
    shaped: bool,
    aggregate: tuple[int, int] | None,
    trace_path: Path | None,
    as_json: bool,
) -> None:
    """Print the outcome. Raises UsageError for options that exclude each other, and as the fidelities' `predict` do."""
    plan = files.read(path, Plan)
    outcome = _predicted(
        plan,
        changed(cluster, bandwidth_bit_per_s, None),
        profile_of(plan, profile_path),
        conditions,
        fidelity=fidelity,
        steps=steps,
        shaped=shaped,
        aggregate=aggregate,
        trace_path=trace_path,
    )
    shown: list[Table | str] = [
        f"{outcome.world} ranks, {outcome.network}, {outcome.fidelity}: {outcome.step_s * 1e3:.2f} ms a step, "
        f"{outcome.exposed_s * 1e3:.2f} ms of it waiting for communication"
    ]
    if outcome.buckets:
        shown.append(_buckets(outcome))
    shown.append(_links(outcome))
    if trace_path is not None:
        shown.append(f"Trace written to {trace_path}")
    publish(shown, outcome, as_json=as_json)


def profile_of(plan: Plan, path: Path | None) -> Profile:
    """Return the profile in a file; otherwise a neutral one of the plan's gradients, all ready at once."""
    if path is not None:
        return files.read(path, Profile)
    dtypes = {name: bucket.dtype for bucket in plan.buckets for name in bucket.variables}
    elements = dict.fromkeys(dtypes, 0)
    for bucket in plan.buckets:
        for name, size in sizes_of(bucket):
            elements[name] += size
    return neutral_profile(
        Gradient(name=name, shape=(elements[name],), dtype=dtype, ready_s=0.0, needed_s=0.0)
        for name, dtype in dtypes.items()
    )


def _buckets(outcome: Outcome) -> Table:
    table = Table("bucket", "elements", "launched", "done", title="first step")
    for each in outcome.buckets:
        table.add_row(
            str(each.bucket),
            f"{each.elements:,}",
            f"{each.launched_s * 1e3:.2f} ms",
            f"{each.done_s * 1e3:.2f} ms",
        )
    return table


def _links(outcome: Outcome) -> Table:
    table = Table("link", "rate", "carries", "busy", title="busiest links")
    for load in outcome.loads[:LINKS_SHOWN]:
        table.add_row(
            load.link,
            f"{load.bit_per_s / 1e6:,.0f} Mbit/s",
            f"{load.bytes / 1e6:,.2f} MB",
            f"{load.busy:.0%}",
        )
    return table


def _predicted(
    plan: Plan,
    cluster: Cluster,
    profile: Profile,
    conditions: Conditions,
    *,
    fidelity: Fidelity,
    steps: int,
    shaped: bool,
    aggregate: tuple[int, int] | None,
    trace_path: Path | None,
) -> Outcome:
    if aggregate is not None:
        if steps > 1 or trace_path or shaped:
            raise UsageError("--aggregate is one step by flows: leave out --steps, --trace and --shaped")
        switch = aggregation.Switch(slots=aggregate[0], slot_bytes=aggregate[1])
        network = from_cluster(cluster, plan.world)
        return aggregation.predict(plan, network, profile, switch, conditions=conditions)
    if fidelity != "flow":
        return levels.predict(plan, cluster, profile, fidelity=fidelity)
    network = from_cluster(cluster, plan.world, shaped=shaped)
    run = flow.predict(
        plan, network, profile, conditions=conditions, steps=steps, recorded=trace_path is not None
    )
    if trace_path is not None:
        from hocket.tools.simulation import record  # noqa: PLC0415  # loads NumPy

        record.write(
            trace_path,
            plan=plan,
            profile=profile,
            network=network,
            simulation=run.simulation,
            cluster=cluster,
        )
    return run.outcome

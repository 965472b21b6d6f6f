"""`hocket simulate plan`: steps in virtual time on one network: step time, buckets, busiest links; on request as a trace."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Gradient, Profile
from hocket.cli.shared.options import (
    FILE,
    dir_option,
    fidelity_option,
    json_option,
    made,
    profile_option,
)
from hocket.cli.shared.output import publish
from hocket.cli.shared.values import RATE
from hocket.cli.simulations.aggregate import aggregate_option
from hocket.cli.simulations.networks import network_option, place, place_option
from hocket.cli.simulations.options import check_ideal, conditions_options
from hocket.errors import UsageError
from hocket.planning.buckets import sizes_of
from hocket.planning.search import neutral_profile
from hocket.tools.simulation import aggregation, flow
from hocket.tools.simulation import fidelity as levels
from hocket.tools.simulation.aggregation import Switch
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.fidelity import Fidelity
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.simulation.outcome import Outcome
from hocket.tools.simulation.shapes import Shape
from hocket.tools.simulation.wired import Wired

LINKS_SHOWN = 8


@click.command("plan")
@click.argument("path", metavar="PLAN", type=FILE)
@place_option
@network_option
@profile_option()
@click.option(
    "--bandwidth",
    "bandwidth_bit_per_s",
    type=RATE,
    metavar="RATE",
    help="Rate of every host's link, such as 100Mbit.  [default: the cluster's]",
)
@fidelity_option
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", default=1, show_default=True, help="Training steps."
)
@conditions_options
@aggregate_option("The switch sums all buckets, in so many slots of so many bytes.")
@dir_option("--trace", "trace_path", text="Write a trace directory for `hocket report`.", callback=made)
@json_option
def command(
    *,
    path: Path,
    cluster_path: Path | None,
    shape: Shape | Wired | None,
    profile_path: Path | None,
    bandwidth_bit_per_s: float | None,
    fidelity: Fidelity,
    steps: int,
    conditions: Conditions,
    shaped: bool,
    aggregate: Switch | None,
    trace_path: Path | None,
    as_json: bool,
) -> None:
    """Predict the step time of PLAN, bucket by bucket.

    \b
    Example: hocket simulate plan plan.json --cluster cluster.toml --profile profile.json --trace simulated
    Example: hocket simulate plan plan.json --network leaf-spine:4x8,25Gbit,oversubscription=3
    """
    where = place(cluster_path, shape, bandwidth_bit_per_s, shaped=shaped)
    check_ideal(fidelity, conditions, shaped, steps > 1, trace_path, aggregate)
    plan = files.read(path, Plan)
    profile = profile_of(plan, profile_path)
    if aggregate is not None:
        if steps > 1 or trace_path or shaped:
            raise UsageError("--aggregate is one step by flows: leave out --steps, --trace and --shaped")
        network = from_cluster(where, plan.world) if isinstance(where, Cluster) else where.network(plan.world)
        outcome = aggregation.predict(plan, network, profile, aggregate, conditions=conditions)
    elif fidelity != "flow":
        if not isinstance(where, Cluster):
            raise UsageError(
                "a network without a cluster file is simulated by flows: leave out --fidelity, or give --cluster"
            )
        outcome = levels.predict(plan, where, profile, fidelity=fidelity)
    else:
        outcome = _by_flow(
            plan, where, profile, conditions, steps=steps, shaped=shaped, trace_path=trace_path
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


def _by_flow(
    plan: Plan,
    where: Cluster | Shape | Wired,
    profile: Profile,
    conditions: Conditions,
    *,
    steps: int,
    shaped: bool,
    trace_path: Path | None,
) -> Outcome:
    cluster = where if isinstance(where, Cluster) else None
    network = (
        from_cluster(where, plan.world, shaped=shaped)
        if isinstance(where, Cluster)
        else where.network(plan.world)
    )
    recorded = trace_path is not None
    run = flow.predict(plan, network, profile, conditions=conditions, steps=steps, recorded=recorded)
    if trace_path is not None:
        from hocket.tools.simulation import record  # noqa: PLC0415  # loads NumPy

        record.write(
            trace_path,
            plan=plan,
            profile=profile,
            network=network,
            simulation=run.simulation,
            parts=run.parts,
            cluster=cluster,
        )
    return run.outcome

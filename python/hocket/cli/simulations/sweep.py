"""`hocket simulate sweep`: a row for each combination of bandwidths, numbers of ranks and strategies, or of a plan's bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.cli.shared.cluster import tasks_at
from hocket.cli.shared.options import (
    cluster_option,
    fidelity_option,
    json_option,
    plan_option,
    profile_option,
    ray_option,
    svg_option,
    worlds_option,
)
from hocket.cli.shared.output import bars, publish, rate_text, save
from hocket.cli.shared.refuse import refuse
from hocket.cli.shared.values import NAMES
from hocket.cli.simulations.options import bandwidths_option, check_ideal, conditions_options
from hocket.cli.simulations.plan import profile_of
from hocket.planning.search import neutral_profile
from hocket.tools.simulation import plot
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.fidelity import Fidelity
from hocket.tools.simulation.sweep import Answer, Case, cases, sweep

STRATEGIES = ("ring", "two-level", "two-level-f16")


@click.command("sweep")
@cluster_option(required=True)
@profile_option()
@plan_option("Plan file (JSON) to try at each bandwidth, in place of strategies.")
@worlds_option("Ranks.  [default: all slots]")
@bandwidths_option
@click.option(
    "--strategy",
    "strategies",
    type=NAMES,
    metavar="NAME,...",
    help=f"Strategies to compare.  [default: {','.join(STRATEGIES)}]",
)
@fidelity_option
@conditions_options
@svg_option
@ray_option
@json_option
def command(
    *,
    cluster_path: Path,
    profile_path: Path | None,
    plan_path: Path | None,
    worlds: tuple[int, ...] | None,
    bandwidths: tuple[float | None, ...],
    strategies: tuple[str, ...] | None,
    fidelity: Fidelity,
    conditions: Conditions,
    shaped: bool,
    svg_path: Path | None,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Predict step times of several strategies, or of a plan at several bandwidths.

    Several values of -n, --bandwidth or --strategy give a row for each combination, in parallel processes or on a Ray
    cluster. -n repeats the cluster's hosts in its racks, one rank each; trunks stay as they are.

    \b
    Example: hocket simulate sweep --cluster cluster.toml --profile profile.json -n 4,16 --bandwidth 100Mbit,1Gbit --svg steps.svg
    Example: hocket simulate sweep --cluster cluster.toml --plan plan.json --bandwidth 100Mbit,1Gbit
    """
    cluster = files.read(cluster_path, Cluster)
    check_ideal(fidelity, conditions, shaped)
    if plan_path is not None:
        refuse(
            {"-n": worlds, "--strategy": strategies},
            ("-n", "--strategy"),
            "a plan is for its own ranks\nhint: `hocket plan` makes one for others",
        )
        plan = files.read(plan_path, Plan)
        profile = profile_of(plan, profile_path)
        requested = [
            Case(bandwidth_bit_per_s=rate, world=plan.world, strategy=plan.label or "plan")
            for rate in bandwidths
        ]
    else:
        plan = None
        profile = files.read(profile_path, Profile) if profile_path else neutral_profile()
        slots = sum(host.slots for host in cluster.hosts)
        requested = cases(bandwidths, worlds or (slots,), strategies or STRATEGIES)
    with tasks_at(ray_address) as tasks, bars(transient=True) as progress:
        bar = progress.add_task("simulating", total=len(requested))
        answers = sweep(
            cluster,
            profile,
            requested,
            given=plan,
            fidelity=fidelity,
            conditions=conditions if fidelity == "flow" else None,
            shaped=shaped,
            tasks=tasks,
            on_done=lambda: progress.advance(bar),
        )
    if svg_path is not None:
        save(svg_path, plot.svg(answers))
    publish((_table(answers),), answers, as_json=as_json)


def _table(answers: Sequence[Answer]) -> Table:
    table = Table("bandwidth", "ranks", "strategy", "step", "waiting", "busiest link")
    for each in answers:
        rate = each.case.bandwidth_bit_per_s
        table.add_row(
            "as the cluster has it" if rate is None else rate_text(rate),
            str(each.case.world),
            each.case.strategy,
            f"{each.step_s * 1e3:,.1f} ms",
            f"{each.exposed_s * 1e3:,.1f} ms",
            each.bottleneck,
        )
    return table

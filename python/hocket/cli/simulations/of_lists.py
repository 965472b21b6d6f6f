"""Lists of all combinations of bandwidths, numbers of ranks and strategies, or a plan at several bandwidths; a row for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.cli.shared.cluster import tasks_at
from hocket.cli.shared.output import bars, publish, rate_text, save
from hocket.cli.simulations.of_plan import profile_of
from hocket.planning.search import neutral_profile
from hocket.tools.simulation import plot
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.fidelity import Fidelity
from hocket.tools.simulation.sweep import Case, cases, sweep


def run(
    plan_path: Path | None,
    cluster: Cluster,
    profile_path: Path | None,
    conditions: Conditions,
    *,
    worlds: Sequence[int] | None,
    bandwidths: Sequence[float | None],
    strategies: Sequence[str],
    fidelity: Fidelity,
    shaped: bool,
    svg_path: Path | None,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Print the answers. Raises UsageError for an unknown strategy or no such Ray cluster, and as the fidelities' `predict` do."""
    if plan_path is not None:
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
        requested = cases(bandwidths, worlds or (slots,), strategies)
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
    publish((table,), answers, as_json=as_json)

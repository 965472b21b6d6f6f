"""`hocket plan`: score the ways to exchange a model's gradients on a cluster, and write the best one."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.tuning import Tuning
from hocket.cli.shared.inputs import cluster_option, profile_option, tuning_option
from hocket.cli.shared.output import console
from hocket.planners import search


@click.command("plan")
@cluster_option
@profile_option
@click.option("-n", "--world", type=int, help="Number of ranks; else the profile's, else all slots.")
@click.option(
    "--codec",
    type=click.Choice(["auto", "none", "f16"]),
    default="auto",
    show_default=True,
    help="f16 on the wire: where a link is slow, if that is faster; never; always.",
)
@tuning_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the plan here (JSON).")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON instead of a table.")
def command(
    *,
    cluster_path: Path,
    profile_path: Path | None,
    world: int | None,
    codec: search.CodecPolicy,
    tuning_path: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose how gradients travel: order, algorithm, codec and buckets, by predicted step time.

    Example: hocket plan --cluster cluster.toml --profile profile.json -o plan.json
    """
    cluster = files.read(cluster_path, Cluster)
    profile = files.read(profile_path, Profile) if profile_path else None
    slots = sum(host.slots for host in cluster.hosts)
    chosen = search.plan(
        cluster,
        profile,
        world or (profile.world if profile else slots),
        codec=codec,
        tuning=None if tuning_path is None else files.read(tuning_path, Tuning),
    )
    if output:
        files.write(output, chosen)
    if as_json:
        click.echo(files.encode(chosen), nl=False)
        return
    _print(chosen)
    if output:
        console().print(f"Plan written to {output}", highlight=False)


def _print(chosen: Plan) -> None:
    table = Table("candidate", "predicted step", "", title=f"{chosen.world} ranks, fastest first")
    for each in sorted(chosen.candidates, key=lambda each: each.predicted_step_s):
        mark = "chosen" if each.label == chosen.label else ""
        table.add_row(each.label, f"{each.predicted_step_s * 1e3:.1f} ms", mark)
    shown = console()
    shown.print(table)
    shown.print(chosen.reason, highlight=False, soft_wrap=True)

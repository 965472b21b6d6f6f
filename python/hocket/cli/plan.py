"""`hocket plan`: score the ways to exchange a model's gradients on a cluster, and write the best one."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT, Promise
from hocket.artefacts.tuning import Tuning
from hocket.cli.shared.options import (
    cluster_option,
    json_option,
    output_option,
    profile_option,
    promise_option,
    tuning_option,
    world_option,
)
from hocket.cli.shared.output import publish
from hocket.planning import search


@click.command("plan")
@cluster_option(required=True)
@profile_option()
@world_option("Number of ranks.  [default: the profile's, or all slots]")
@promise_option
@tuning_option()
@output_option("Write the plan here (JSON).")
@json_option
def command(
    *,
    cluster_path: Path,
    profile_path: Path | None,
    world: int | None,
    promise: Promise | None,
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
        promise=promise or EXACT,
        tuning=None if tuning_path is None else files.read(tuning_path, Tuning),
    )
    if output:
        files.write(output, chosen)
    written = (f"Plan written to {output}",) if output else ()
    publish((_table(chosen), chosen.reason, *written), chosen, as_json=as_json)


def _table(chosen: Plan) -> Table:
    table = Table("candidate", "predicted step", "", title=f"{chosen.world} ranks, fastest first")
    for each in sorted(chosen.evidence.candidates, key=lambda each: each.predicted_step_s):
        mark = "chosen" if each.label == chosen.label else ""
        table.add_row(each.label, f"{each.predicted_step_s * 1e3:.1f} ms", mark)
    return table

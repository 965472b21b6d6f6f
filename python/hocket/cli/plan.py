"""`hocket plan`: score routes to exchange a model's gradients on a cluster, and write the best one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

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
from hocket.errors import UsageError
from hocket.planning import delays, search
from hocket.planning.search import Option
from hocket.planning.updating import by_owners
from hocket.planning.walk import Rule
from hocket.simulation import shortlist


@click.command("plan")
@cluster_option(required=True)
@profile_option()
@world_option("Number of ranks.  [default: the profile's, or all slots]")
@promise_option
@tuning_option()
@click.option(
    "--builder",
    metavar="NAME",
    help="Take the plan of this builder instead of the fastest: bound-shares, greedy, ps-load-balancing, parallax, or an "
    "algorithm for all buckets, such as ring.",
)
@click.option(
    "--explain",
    metavar="VARIABLE",
    help="Also show every route for the bucket with this variable, and what the step would take.",
)
@click.option(
    "--update",
    type=click.Choice(["replicas", "owners"]),
    default="replicas",
    show_default=True,
    help="Who updates values: all ranks, or owners alone, which have the optimizer's state of their parts alone.",
)
@click.option(
    "--rate",
    type=click.Choice(get_args(Rule)),
    default="linear",
    show_default=True,
    help="Of promises from `merged` on: what the learning rate is multiplied with for an update of k iterations: k (for SGD), its "
    "root (for Adam), or one.",
)
@output_option("Write the plan here (JSON).")
@json_option
def command(
    *,
    cluster_path: Path,
    profile_path: Path | None,
    world: int | None,
    promise: Promise | None,
    tuning_path: Path | None,
    builder: str | None,
    explain: str | None,
    update: str,
    rate: Rule,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose how gradients travel: order, algorithm, codec and buckets, by predicted step time.

    \b
    Example: hocket plan --cluster cluster.toml --profile profile.json -o plan.json
    """
    cluster = files.read(cluster_path, Cluster)
    profile = files.read(profile_path, Profile) if profile_path else search.neutral_profile()
    slots = sum(host.slots for host in cluster.hosts)
    considered = search.considered(
        cluster,
        profile,
        world or (profile.world if profile_path else slots),
        promise=promise or EXACT,
        tuning=None if tuning_path is None else files.read(tuning_path, Tuning),
    )
    if builder is None:
        plan = shortlist.chosen(considered, cluster, profile)
    else:
        plan = shortlist.with_sensitivity(considered.explained(considered.of_builder(builder)), considered)
    if update == "owners" and promise is not None and promise.allows("merged"):
        raise UsageError(
            f"--update owners with the promise `{promise.level}`: no rank has the whole mean, which turns need\n"
            "hint: leave out --update, or promise `rounded`"
        )
    if update == "owners":
        plan = considered.rescored(by_owners(plan))
    elif profile_path is not None:
        plan = delays.scheduled(plan, considered.question.graph, profile, promise or EXACT, rate)
    options = [] if explain is None else considered.options(plan, explain)
    if output:
        files.write(output, plan)
    written = (f"Plan written to {output}",) if output else ()
    shown = [_table(plan)]
    if explain is not None:
        shown.append(_options(explain, options))
    result = plan if explain is None else {"plan": plan, "options": options}
    publish((*shown, plan.reason, *written), result, as_json=as_json)


def _table(plan: Plan) -> Table:
    candidates = plan.evidence.candidates
    simulated = any(each.simulated_step_s is not None for each in candidates)
    columns = ["candidate", "predicted step", *(["simulated"] if simulated else []), ""]
    table = Table(*columns, title=f"{plan.world} ranks, fastest first")
    for each in sorted(candidates, key=lambda each: each.predicted_step_s):
        times = [_milliseconds(each.predicted_step_s)]
        if simulated:
            times.append("" if each.simulated_step_s is None else _milliseconds(each.simulated_step_s))
        table.add_row(each.label, *times, "chosen" if each.label == plan.label else "")
    return table


def _options(variable: str, options: Sequence[Option]) -> Table:
    several = len({each.bucket for each in options}) > 1
    title = f"{'buckets' if several else 'the bucket'} with {variable}, other buckets unchanged"
    columns = ["route", "bucket alone", "step", ""]
    table = Table(*(["bucket", *columns] if several else columns), title=title)
    for each in options:
        mark = "chosen" if each.chosen else ""
        cells = each.label, _milliseconds(each.alone_s), _milliseconds(each.step_s), mark
        table.add_row(*((str(each.bucket), *cells) if several else cells))
    return table


def _milliseconds(time_s: float) -> str:
    return f"{time_s * 1e3:.1f} ms"

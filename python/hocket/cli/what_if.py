"""`hocket what-if`: step times for other bandwidths, numbers of workers and strategies, before anything is bought."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.profile import Profile
from hocket.cli.shared.inputs import cluster_option, fidelity_option, profile_option
from hocket.cli.shared.output import console

if TYPE_CHECKING:
    from hocket.simulation.fidelity import Fidelity

MEGABIT = 1e6


def _numbers(_context: click.Context, _option: click.Parameter, text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(each) for each in text.split(","))
    except ValueError:
        found = ()
    if not found or any(not 0 < each < float("inf") for each in found):
        raise click.BadParameter(f"`{text}` is not a list of numbers above 0 such as 100,1000")
    return found


def _counts(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    counts = _numbers(context, option, text)
    if any(count != int(count) or count < 2 for count in counts):
        raise click.BadParameter(f"`{text}` is not a list of whole numbers from 2 such as 4,8")
    return tuple(int(count) for count in counts)


@click.command("what-if")
@cluster_option
@profile_option
@click.option(
    "--bandwidths",
    default="100,1000,10000",
    show_default=True,
    callback=_numbers,
    help="Mbit/s of a host's link.",
)
@click.option(
    "--workers", default="4,8,16", show_default=True, callback=_counts, help="Hosts of one rank each."
)
@click.option(
    "--strategies", default="ring,two-level,two-level-f16", show_default=True, help="What to compare."
)
@fidelity_option
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Also draw it here, as SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON.")
def command(
    *,
    cluster_path: Path,
    profile_path: Path | None,
    bandwidths: tuple[float, ...],
    workers: tuple[int, ...],
    strategies: str,
    fidelity: Fidelity,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Sweep bandwidth x workers x strategy in virtual time, in parallel.

    Hosts are repeated in the cluster's racks; trunks stay as they are.

    Example: hocket what-if --cluster cluster.toml --profile profile.json --workers 4,16,64 --plot what-if.svg
    """
    from hocket.planners.search import neutral_profile  # noqa: PLC0415  # loads what only this verb needs
    from hocket.simulation import plot as drawing  # noqa: PLC0415  # as above
    from hocket.simulation.sweep import cases, sweep  # noqa: PLC0415  # as above

    cluster = files.read(cluster_path, Cluster)
    profile = files.read(profile_path, Profile) if profile_path else neutral_profile()
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    asked = cases([rate * MEGABIT for rate in bandwidths], workers, names)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=len(asked))
        answers = sweep(cluster, profile, asked, fidelity=fidelity, on_done=lambda: progress.advance(task))
    if plot is not None:
        plot.write_text(drawing.svg(answers))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answers), indent=2))
        return
    table = Table("bandwidth", "workers", "strategy", "step", "waiting", "busiest link")
    for each in answers:
        table.add_row(
            f"{each.case.bandwidth_bit_per_s / MEGABIT:,.0f} Mbit/s",
            str(each.case.workers),
            each.case.strategy,
            f"{each.step_s * 1e3:,.1f} ms",
            f"{each.exposed_s * 1e3:,.1f} ms",
            each.bottleneck,
        )
    console().print(table)

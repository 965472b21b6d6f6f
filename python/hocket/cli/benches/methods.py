"""`hocket bench methods`: methods of training side by side, loss against wall time."""

from __future__ import annotations

from pathlib import Path

import click

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import cluster_option, svg_option, world_option
from hocket.cli.shared.output import publish, save
from hocket.cli.shared.values import LEARNING_RATES, NAMES, Real

RATES = (0.002, 0.004, 0.008, 0.016)
STEPS, QUICK_STEPS = 400, 24
SEEDS, QUICK_SEEDS = 3, 2
EVALUATIONS, QUICK_EVALUATIONS = 20, 4
FURTHER = 2
"""Most rates that are tried beyond an edge of the grid, for a method whose best lies there."""


@click.command("methods")
@world_option("Ranks on this machine.", least=2, default=4)
@click.option(
    "--methods",
    "names",
    type=NAMES,
    metavar="NAME,...",
    help="Those to compare with the first of them.  [default: all]",
)
@click.option(
    "--model",
    type=click.Choice(["bytes", "digits"]),
    default="bytes",
    show_default=True,
    help="A transformer of 0.05 million parameters on the text of Python's library, or a CNN on digits.",
)
@click.option(
    "--steps", type=click.IntRange(2), metavar="N", help=f"Of a rank in each run.  [default: {STEPS}]"
)
@click.option("--seeds", type=click.IntRange(1), metavar="N", help=f"Runs to compare.  [default: {SEEDS}]")
@click.option(
    "--learning-rates",
    "rates",
    type=LEARNING_RATES,
    metavar="RATE,...",
    help="Learning rates of AdamW to try on a seed of their own, the same for all.  [default: 0.002,0.004,0.008,0.016]",
)
@click.option(
    "--think-ms",
    type=Real(0),
    default=0.0,
    metavar="MS",
    help="Time that each step waits, in place of a larger model's computation.",
)
@cluster_option("Cluster file (TOML) to emulate, a rank on each slot, instead of -n; needs root.")
@click.option("--quick", is_flag=True, help="A few steps, two rates and two seeds: to see that it works.")
@svg_option
@numbers_options
def methods(
    *,
    world: int,
    names: tuple[str, ...] | None,
    model: str,
    steps: int | None,
    seeds: int | None,
    rates: tuple[float, ...] | None,
    think_ms: float,
    cluster_path: Path | None,
    quick: bool,
    svg_path: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Methods of training on one network, by loss against wall time.

    DDP on Gloo with its hooks, Hocket's exact, rounded and late means, and ranks that step alone: each with its best learning rate
    of one grid, then with other seeds, in turns. Where the best lies at an edge of the grid, up to two further rates are tried, and
    an edge that is still the best is marked. Differences are shown beside deviations of seeds. Hours for all methods: name a few.

    Example: hocket bench methods -n 2 --quick --methods ddp,exact,diloco
    """
    from hocket.tools.bench.methods import plot, table  # noqa: PLC0415  # loads what only this verb needs
    from hocket.tools.bench.methods.run import Wanted, compare  # noqa: PLC0415  # as above

    grid = tuple(dict.fromkeys(rates or (RATES[1:3] if quick else RATES)))
    wanted = Wanted(
        names=names or (),
        model=model,
        world=world,
        steps=steps or (QUICK_STEPS if quick else STEPS),
        evaluations=QUICK_EVALUATIONS if quick else EVALUATIONS,
        rates=grid,
        seeds=tuple(range(1, 1 + (seeds or (QUICK_SEEDS if quick else SEEDS)))),
        tuned_on=0,
        think_s=think_ms / 1000,
        further=0 if quick else FURTHER,
        cluster=None if cluster_path is None else files.read(cluster_path, Cluster),
    )
    found = compare(wanted, lambda line: click.echo(line, err=True))
    publish(
        (table.head(found), table.table(found), *table.sentences(found)),
        found,
        as_json=as_json,
        output=output,
    )
    if svg_path is not None:
        save(svg_path, plot.svg(found))


COMMANDS = [methods]

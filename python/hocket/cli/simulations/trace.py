"""`hocket simulate trace`: for each number of workers and bandwidth, the median iteration of the slowest worker."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import click
import msgspec
from rich.table import Table

from hocket.cli.shared.options import json_option, worlds_option
from hocket.cli.shared.output import publish, rate_text
from hocket.cli.shared.values import Real
from hocket.cli.simulations.aggregate import aggregate_option
from hocket.cli.simulations.networks import network_option, place, place_option
from hocket.cli.simulations.options import bandwidths_option, conditions_options
from hocket.tools.replay.predicted import predicted
from hocket.tools.replay.run import Replayed
from hocket.tools.simulation.aggregation import Switch
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.shapes import Shape
from hocket.tools.simulation.wired import Wired


@click.command("trace")
@click.argument("paths", metavar="TRACE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@place_option
@network_option
@worlds_option("Ranks; of a trace of parameter servers, workers.  [default: as recorded]")
@bandwidths_option
@conditions_options
@click.option(
    "--computation",
    type=Real(0),
    metavar="FACTOR",
    default=1.0,
    show_default=True,
    help="What lies between messages takes so many times as long.",
)
@click.option(
    "--draw",
    is_flag=True,
    help="Draw each gap, by --seed, from those measured of its kind, instead of repeating them.",
)
@aggregate_option(
    "The switch of each rack sums workers' pushes, in so many slots of so many bytes; `:SHARE` behind them of the "
    "pieces are lost, and sent again after 1 ms."
)
@json_option
def command(
    *,
    paths: tuple[Path, ...],
    cluster_path: Path | None,
    shape: Shape | Wired | None,
    worlds: tuple[int, ...] | None,
    bandwidths: tuple[float | None, ...],
    conditions: Conditions,
    computation: float,
    draw: bool,
    aggregate: Switch | None,
    shaped: bool,
    as_json: bool,
) -> None:
    """Predict iteration times of a TRACE sent again, once for each combination of -n and --bandwidth.

    A TRACE is a trace directory, or the files of a DLC trace, one per node: its messages, what they wait for and the
    gaps between. With -n it has that many ranks: a plan's programs are compiled for them, and parameter servers get
    copies of the recorded workers. With --draw, computation, search and update are drawn from the measured ones.

    Example: hocket simulate trace worker0.txt worker1.txt server0.txt --cluster cluster.toml -n 8
    """
    found: list[tuple[int | None, float | None, Replayed]] = []
    for count, rate in product(worlds or (None,), bandwidths):
        again = predicted(
            paths,
            place(cluster_path, shape, rate, shaped=shaped),
            workers=count,
            computation=computation,
            conditions=conditions,
            drawn=draw,
            aggregate=aggregate,
            shaped=shaped,
        )
        found.append((count, rate, again))
    table = Table("", "median iteration of the slowest worker", "simulated / recorded")
    table.add_row("recorded", f"{found[0][2].recorded_median_s * 1e3:.2f} ms", "")
    for count, rate, again in found:
        title = "simulated"
        title += "" if count is None else f", workers: {count}"
        title += "" if rate is None else f", {rate_text(rate)}"
        table.add_row(title, f"{again.replayed_median_s * 1e3:.2f} ms", f"{again.ratio:.3f}")
    rows = [
        {"world": count, "bandwidth_bit_per_s": rate, **msgspec.to_builtins(again)}
        for count, rate, again in found
    ]
    publish((table,), rows[0] if len(rows) == 1 else rows, as_json=as_json)

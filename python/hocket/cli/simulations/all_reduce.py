"""`hocket simulate all-reduce`: one all-reduce on a network of links and switches, by trees that fill them and by others."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.plan import AllReduce
from hocket.cli.shared.options import FILE, json_option, output_option
from hocket.cli.shared.output import publish
from hocket.cli.shared.values import SIZE
from hocket.tools.simulation import all_reduce, wired


@click.command("all-reduce")
@click.argument("path", metavar="LINKS", type=FILE)
@click.option(
    "--size",
    "size_bytes",
    type=SIZE,
    metavar="SIZE",
    default="1GiB",
    show_default=True,
    help="Bytes of each rank.",
)
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    type=click.Choice(["ring", "direct"]),
    help="One to compare with, over the ranks in their order; repeatable.",
)
@output_option("Plan file (JSON) to write: buckets that travel by the trees.")
@json_option
def command(
    *, path: Path, size_bytes: int, algorithms: tuple[str, ...], output: Path | None, as_json: bool
) -> None:
    """Find trees that fill the links of a network, and predict an all-reduce by them.

    LINKS is a TOML file: `ranks`, names; `[[links]]`, each with two names `between` which it leads and its `bit_per_s`, or
    two rates, there and back. Names that are no ranks are switches. The optimum is what the narrowest cut allows, if ranks
    collect and spread equal parts. Links alone take time in this prediction.

    Example: hocket simulate all-reduce links.toml --size 1GiB --algorithm ring
    """
    network = wired.read(path).network()
    found = all_reduce.trees(network)
    routes = [found.route, *(AllReduce(algorithm=name) for name in algorithms)]
    rows = [all_reduce.predict(network, found, route, size_bytes) for route in routes]
    table = Table("algorithm", "time", "throughput", "of the optimum", "messages")
    for row in rows:
        table.add_row(
            row.algorithm,
            f"{row.taken_s * 1e3:,.3f} ms",
            f"{row.bytes_per_s / 1e9:,.2f} GB/s",
            f"{row.of_optimum:.1%}",
            f"{row.messages:,}",
        )
    shown: list[Table | str] = [
        f"{network.title}: {found.pairs} pairs of trees, found in {found.found_s:.2f} s; the optimum is "
        f"{1 / all_reduce.BITS / found.least_s_per_bit / 1e9:,.2f} GB/s",
        table,
    ]
    if output is not None:
        files.write(output, all_reduce.plan(found.route, network.world, size_bytes))
        shown.append(f"Plan written to {output}")
    publish(shown, {"trees": found, "predicted": rows}, as_json=as_json)

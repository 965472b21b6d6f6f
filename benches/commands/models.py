"""`python -m benches models`: known models over parameter servers, beside the figures of a paper."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from benches.commands.options import cache_line_ns, listed, row_option
from benches.models.catalogue import MODELS, Figures
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import dir_option
from hocket.cli.shared.output import publish
from hocket.cli.shared.values import COUNTS

TIMES = ("computation", "communication", "overlap", "update", "search", "synchronisation")


@click.command("models")
@row_option
@click.option(
    "--servers", type=COUNTS, metavar="N,...", default="1,2", show_default=True, help="How many serve."
)
@click.option(
    "--iterations", type=click.IntRange(2), metavar="N", help="Iterations.  [default: about a minute's]"
)
@dir_option("--trace", "trace_path", text="Write trace directories below this one.")
@numbers_options
def command(
    *,
    rows: tuple[str, ...],
    servers: tuple[int, ...],
    iterations: int | None,
    trace_path: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """LeNet-5, ResNet-50 and VGG-19 trained by two workers over parameter servers, 1 Gbit/s a host: sizes, phases, server's costs.

    LeNet-5 trains on digits of scikit-learn, the others on random images. About six minutes; needs root.

    Example: python -m benches models --row lenet5 --servers 1
    """
    from benches.models.measure import measure  # noqa: PLC0415  # loads what only this verb needs

    if listed(rows, MODELS):
        return
    near = cache_line_ns()
    sizes = Table("", "tensors", "MB an iteration", "pushes, bytes", title="What a worker pushes")
    times = Table("", "iterations", *TIMES, title="Means over iterations, and over keys of servers")
    measured = []
    for name in rows or tuple(MODELS):
        paper = MODELS[name].paper
        if paper is not None:
            _add(sizes, times, f"{MODELS[name].title}, paper", paper)
        for count in servers:
            title = f"{MODELS[name].title}, {count} server{'s' if count > 1 else ''}"
            click.echo(title, err=True)
            place = None if trace_path is None else trace_path / f"{name}-{count}"
            found = measure(name, servers=count, iterations=iterations, keep=place)
            measured.append({"model": name, "servers": count, **msgspec.to_builtins(found)})
            _add(sizes, times, title, found)
    result = {"cache_line_ns": near, "rows": measured}
    publish((sizes, times), result, as_json=as_json, output=output)


def _add(sizes: Table, times: Table, title: str, found: Figures) -> None:
    pushes = f"{found.shortest_push_bytes:,} to {found.longest_push_bytes:,}"
    sizes.add_row(title, str(found.tensors), f"{found.volume_mb:.2f}", pushes)
    values = (
        (found.computation_ms, "ms"),
        (found.communication_ms, "ms"),
        (found.overlap_percent, "%"),
        (found.update_us, "µs"),
        (found.search_us, "µs"),
        (found.synchronisation_us, "µs"),
    )
    times.add_row(title, str(found.iterations or ""), *(_shown(*each) for each in values))


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"

"""`hocket bench models`: known models over parameter servers, beside the figures of a paper."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from hocket.bench.models.catalogue import MODELS, Figures
from hocket.cli.benches.options import cache_line_ns, json_option
from hocket.cli.shared.output import console, write

TIMES = ("computation", "communication", "overlap", "update", "search", "synchronisation")


@click.command("models")
@click.option(
    "--model",
    "models",
    type=click.Choice(list(MODELS)),
    multiple=True,
    help="One model alone; may be given again.",
)
@click.option(
    "--servers",
    type=click.IntRange(1),
    multiple=True,
    default=(1, 2),
    show_default=True,
    help="How many serve.",
)
@click.option("--iterations", type=click.IntRange(2), help="Default: what takes about a minute.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the traces here, a directory each."
)
@json_option
def models(
    *,
    models: tuple[str, ...],
    servers: tuple[int, ...],
    iterations: int | None,
    keep: Path | None,
    out: Path | None,
) -> None:
    """LeNet-5, ResNet-50 and VGG-19 trained by two workers over parameter servers, 1 Gbit/s a host: sizes, phases, server's costs.

    LeNet-5 trains on digits of scikit-learn, the others on random images. About six minutes; needs root.

    Example: hocket bench models --model lenet5 --servers 1
    """
    from hocket.bench.models.measure import measure  # noqa: PLC0415  # loads what only this verb needs

    near = cache_line_ns()
    sizes = Table("", "tensors", "MB an iteration", "pushes, bytes", title="What a worker pushes")
    times = Table("", "iterations", *TIMES, title="Means over iterations, and over keys of servers")
    measured = []
    for name in models or tuple(MODELS):
        paper = MODELS[name].paper
        if paper is not None:
            _add(sizes, times, f"{MODELS[name].title}, paper", paper)
        for count in servers:
            title = f"{MODELS[name].title}, {count} server{'s' if count > 1 else ''}"
            click.echo(title, err=True)
            place = None if keep is None else keep / f"{name}-{count}"
            found = measure(name, servers=count, iterations=iterations, keep=place)
            measured.append({"model": name, "servers": count, **msgspec.to_builtins(found)})
            _add(sizes, times, title, found)
    for table in (sizes, times):
        console().print(table)
    write(out, {"cache_line_ns": near, "rows": measured})


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


COMMANDS = [models]

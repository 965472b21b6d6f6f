"""Shared by the commands: the choice of rows, the distance of the cores, and the form of a row in its table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import click
import msgspec
from rich.table import Table

from benches.row import Row
from hocket import _native
from hocket.cli.shared.output import publish

row_option = click.option(
    "--row", "rows", multiple=True, metavar="NAME", help="One row only; repeatable. `--row list` lists them."
)


def listed(
    wanted: tuple[str, ...],
    known: Collection[str],
) -> bool:
    """Whether the list of rows is wanted; prints it. BadParameter for a row that is not known."""
    if "list" in wanted:
        click.echo("\n".join(known))
        return True
    unknown = next((each for each in wanted if each not in known), None)
    if unknown is not None:
        raise click.BadParameter(f"there is no row `{unknown}`\nhint: `--row list` lists them")
    return False


def cache_line_ns() -> float | None:
    """The current distance of the cores from each other, printed before any result; None with one core."""
    near = _native.cache_line_ns()
    if near is not None:
        click.echo(f"a cache line takes {near:.0f} ns from core to core", err=True)
    return near


def verdict(met: bool, target: float | None) -> str:
    """The column `met`.

    >>> verdict(True, 1.0), verdict(False, 1.0), verdict(True, None)
    ('yes', 'no', '')
    """
    if target is None:
        return ""
    return "yes" if met else "no"


def publish_rows(
    wanted: tuple[str, ...],
    known: Mapping[str, Callable[[], Iterable[Row]]],
    *,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure the wanted rows, each of which may have several numbers, and show them beside their targets."""
    if listed(wanted, known):
        return
    near = cache_line_ns()
    table = Table("row", "what", "measured", "target", "met")
    measured = []
    for name in wanted or tuple(known):
        for row in known[name]():
            bound = (
                ""
                if row.target is None
                else f"{'≥' if row.least else '≤'} {row.target:g} {row.unit}".rstrip()
            )
            click.echo(f"{row.name}: {row.what}: {row.shown}", err=True)
            table.add_row(row.name, row.what, row.shown, bound, verdict(row.met, row.target))
            measured.append({**msgspec.to_builtins(row), "met": row.met})
    publish((table,), {"cache_line_ns": near, "rows": measured}, as_json=as_json, output=output)

"""What the commands have in common: which rows are wanted, how far the cores are apart, how a row stands in its table."""

from __future__ import annotations

from collections.abc import Collection

import click

from hocket import _native

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
    """How far the cores are from each other just now, printed before any result; None with one core."""
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

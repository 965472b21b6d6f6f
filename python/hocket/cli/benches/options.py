"""What the verbs of `hocket bench` have in common: where numbers go, which rows are wanted, how far the cores are apart."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import click

from hocket import _native


def place(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Known before minutes are spent on what is to be written there."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}")
    return path


json_option = click.option(
    "--json",
    "out",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=place,
    help="Also write the numbers here.",
)

row_option = click.option(
    "--row", "rows", multiple=True, help="One row alone; may be given again. `--row list` lists them."
)


def listed(asked: tuple[str, ...], known: Collection[str], what: str = "row") -> bool:
    """Whether a list was asked for, which is shown. BadParameter when one is asked for that is not known."""
    if "list" in asked:
        click.echo("\n".join(known))
        return True
    unknown = next((each for each in asked if each not in known), None)
    if unknown is not None:
        raise click.BadParameter(f"there is no {what} `{unknown}`: {'; '.join(known)}")
    return False


def cache_line_ns() -> float | None:
    """How far the cores are from each other just now, which is said before any result; None with one core."""
    near = _native.cache_line_ns()
    if near is not None:
        click.echo(f"a cache line takes {near:.0f} ns from core to core")
    return near

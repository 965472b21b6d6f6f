"""`python -m benches delays`: merged and late gradients."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import svg_option


@click.command("delays")
@row_option
@svg_option
@click.option(
    "--keep",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of results of `learning`, `lateness`, `alone`, `sites`, `sites-loss` and `guard` that are not computed again: "
    "they take long.",
)
@numbers_options
def command(
    *, rows: tuple[str, ...], svg_path: Path | None, folder: Path | None, output: Path | None, as_json: bool
) -> None:
    """What merged and late gradients gain, whether training notices, and whether predictions of them are right.

    Most rows need root, for emulated hosts, and take minutes. --svg is of the row `sweep`.

    Example: python -m benches delays --row speed
    """
    from benches.delays import guarding, learning, sites, sites_loss  # noqa: PLC0415  # loads what only this verb needs
    from benches.delays.kept import Kept  # noqa: PLC0415  # as above
    from benches.delays.rows import ROWS  # noqa: PLC0415  # as above
    from benches.delays.sweep import sweep  # noqa: PLC0415

    kept = Kept(folder)
    drawn = ROWS | {
        "sweep": functools.partial(sweep, svg_path),
        "learning": functools.partial(learning.learning, kept),
        "lateness": functools.partial(learning.lateness, kept),
        "alone": functools.partial(learning.alone, kept),
        "sites": functools.partial(sites.sites, kept),
        "sites-loss": functools.partial(sites_loss.rows, kept),
        "guard": functools.partial(guarding.guard, kept),
    }
    publish_rows(rows, drawn, output=output, as_json=as_json)

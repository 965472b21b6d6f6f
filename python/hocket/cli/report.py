"""`hocket report DIR`: what a run did, as one HTML page or as JSON."""

from __future__ import annotations

from pathlib import Path

import click

from hocket.cli.shared.options import json_option, output_option
from hocket.cli.shared.output import json_text
from hocket.tools import report


@click.command(name="report")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@output_option("Write the page here.  [default: DIR/report.html]")
@json_option
def command(directory: Path, output: Path | None, as_json: bool) -> None:
    """Make one self-contained HTML page from the trace directory DIR.

    --json prints the numbers of the page's tables instead; with both --json and -o the page is written, too.

    Example: hocket report run1 -o report.html
    """
    if as_json:
        click.echo(json_text(report.numbers(directory)), nl=False)
    if output is not None or not as_json:
        click.echo(f"Wrote {report.build(directory, output)}", err=as_json)

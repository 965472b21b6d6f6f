"""`hocket report DIR`: what a run did, as one HTML page or as JSON."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from hocket import report


@click.command(name="report")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="The page's file.  [default: DIR/report.html]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers of the page's tables instead.")
def command(directory: Path, out: Path | None, as_json: bool) -> None:
    """Make one self-contained HTML page from the trace directory DIR.

    With both --json and -o the page is written, too.

    Example: hocket report run1 -o report.html
    """
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report.numbers(directory)), indent=2))
    if out is not None or not as_json:
        click.echo(f"Wrote {report.build(directory, out)}", err=as_json)

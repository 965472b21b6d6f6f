"""`hocket report DIR`: what a run did, as one HTML page or as JSON."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="report")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="Where to write the page. [default: DIR/report.html]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers of the page's tables instead.")
def command(directory: Path, out: Path | None, as_json: bool) -> None:
    """Make one self-contained HTML page from the trace directory DIR."""
    import msgspec  # noqa: PLC0415  # NumPy and the page's parts load only when this verb runs

    from hocket import report  # noqa: PLC0415

    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report.numbers(directory)), indent=2))
        if out is None:
            return
    click.echo(f"Wrote {report.build(directory, out)}", err=as_json)

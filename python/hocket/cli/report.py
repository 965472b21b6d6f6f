"""`hocket report DIR`: what a run did, as one HTML page or as JSON; `--live`: the page of a job while it runs."""

from __future__ import annotations

from pathlib import Path

import click

from hocket.cli.shared.options import json_option, output_option
from hocket.cli.shared.output import json_text
from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.tools import report

FREE_PORT = "0"


@click.command(name="report")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@output_option("Write the page here.  [default: DIR/report.html]")
@click.option(
    "--live", is_flag=True, help="Serve the page of a job while it runs, which keeps itself up to date."
)
@click.option(
    "--at",
    "where",
    metavar="[ADDRESS:]PORT",
    help="With --live: serve there; on this machine alone without ADDRESS, else with HOCKET_REPORT_TOKEN.  [default: a free port]",
)
@json_option
def command(
    *, directory: Path | None, output: Path | None, live: bool, where: str | None, as_json: bool
) -> None:
    """Make one self-contained HTML page from the trace directory DIR.

    --json prints the numbers of the page's tables instead; with both --json and -o the page is written, too. With --live, DIR may
    be left out where one job of yours on this machine writes a trace; Ctrl-C ends it.

    Example: hocket report run1 -o report.html
    """
    if live:
        if as_json or output is not None:
            raise UsageError(
                "--live serves a page, and writes nothing\nhint: leave --json and -o out, or --live"
            )
        say = lambda line: click.echo(f"hocket: {line}", err=True)  # noqa: E731
        report.serve(directory, where or FREE_PORT, Settings.from_environment().report_token, say)
        return
    if where is not None:
        raise UsageError("--at is where --live serves the page\nhint: give --live as well")
    if directory is None:
        raise click.UsageError("Missing argument 'DIR'.")
    if as_json:
        click.echo(json_text(report.numbers(directory)), nl=False)
    if output is not None or not as_json:
        click.echo(f"Wrote {report.build(directory, output)}", err=as_json)

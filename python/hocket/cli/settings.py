"""`hocket settings`: every environment variable, with what it is now."""

from __future__ import annotations

import json
from dataclasses import fields

import click
from rich.table import Table

from hocket.cli.shared.output import console
from hocket.settings import Settings


@click.command("settings")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(*, as_json: bool) -> None:
    """List every environment variable that Hocket reads.

    Example: HOCKET_TIMEOUT_S=60 hocket settings
    """
    now = Settings.from_environment()
    rows = []
    for setting in fields(Settings):
        name, doc = setting.metadata["name"], setting.metadata["doc"]
        value = getattr(now, setting.name)
        # A secret is not for terminals and logs.
        shown = "set" if setting.name == "secret" and value else value
        rows.append({"name": name, "now": shown, "default": setting.default, "doc": doc})
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table("variable", "now", "default", "what it is")
    for row in rows:
        now_text, default = ("" if row[key] is None else str(row[key]) for key in ("now", "default"))
        table.add_row(row["name"], now_text, default, row["doc"])
    console().print(table)

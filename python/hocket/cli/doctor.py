"""`hocket doctor`: what this machine and installation can do, what is missing and how to get it, every setting in force."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hocket import __version__
from hocket.cli.shared.options import json_option
from hocket.cli.shared.output import publish
from hocket.tools.doctor import knowledge, limits, machine, network, packages, settings, testbed
from hocket.tools.doctor.finding import Finding
from hocket.tools.doctor.knowledge import Known
from hocket.tools.doctor.settings import InForce

SECTIONS = (machine, limits, network, packages, testbed)


@click.command("doctor")
@click.option(
    "--forget",
    "forgets",
    is_flag=True,
    help="Remove what earlier jobs found out about hosts and models, and do nothing else.",
)
@json_option
def command(*, forgets: bool, as_json: bool) -> None:
    """Try what Hocket uses of this machine; say what is missing, what that costs and how to get it; list every setting, and what
    earlier jobs found out about hosts and models.

    Needs some seconds: packages are really imported, and two hosts are emulated. Exit code 1 when something is broken,
    so that no job can run; what is merely missing is no failure.

    \b
    Example: hocket doctor
    Example: HOCKET_TIMEOUT_S=60 hocket doctor --json
    Example: hocket doctor --forget
    """
    if forgets:
        forgotten = knowledge.forget()
        publish((f"Removed {forgotten} entries.",), {"forgotten": forgotten}, as_json=as_json)
        return
    with Console(stderr=True).status("looking"):
        found = [finding for section in SECTIONS for finding in section.findings()]
    in_force, wrong = settings.in_force()
    found += wrong
    broken = [each for each in found if each.state == "broken"]
    missing = [each for each in found if each.state == "missing"]
    known = knowledge.known()
    result = {
        "version": __version__,
        "broken": len(broken),
        "findings": found,
        "settings": in_force,
        "knowledge": known,
    }
    verdict = f"{len(broken)} broken, {len(missing)} missing" if broken or missing else "Everything works"
    publish(
        (*_tables(found), _settings(in_force), *_knowledge(known), f"{verdict}."), result, as_json=as_json
    )
    if broken:
        sys.exit(1)


def _tables(found: Sequence[Finding]) -> list[Table]:
    tables = []
    for section in dict.fromkeys(each.section for each in found):
        table = Table(section, "", "here", "how to get it", title_justify="left")
        for each in found:
            if each.section == section:
                style = {"works": "green", "missing": "yellow", "broken": "red", "unsupported": "dim"}[
                    each.state
                ]
                table.add_row(
                    escape(each.name), f"[{style}]{each.state}[/]", escape(each.detail), escape(each.hint)
                )
        tables.append(table)
    return tables


def _knowledge(known: Sequence[Known]) -> list[Table]:
    if not known:
        return []
    table = Table("known", "of", "age", "KiB")
    for each in known:
        table.add_row(each.kind, escape(each.about), each.age, f"{each.bytes / 1024:.1f}")
    return [table]


def _settings(in_force: Sequence[InForce]) -> Table:
    table = Table("setting", "now", "from", "what it is")
    for each in in_force:
        now = "" if each.now is None else str(each.now)
        table.add_row(each.name, escape(now), each.source, escape(each.doc))
    return table

"""`python -m tests.unchanged`: whether plans, programs, predictions and all that users rely on are as on another commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tests.unchanged import commits, comparison, recorder, records
from tests.unchanged.comparison import Rules

SHOWN, LINES_MAX = 3, 40
"""Differences of each kind that are shown, and lines of each."""

F = TypeVar("F", bound=Callable[..., Any])
KIND = click.Choice(recorder.KINDS)
FILE = click.Path(path_type=Path, dir_okay=False)


def note(text: str) -> None:
    click.echo(text, err=True)


@click.group()
def unchanged() -> None:
    """Whether a commit does what another does, as far as no job is needed to see it."""


@unchanged.command()
@click.argument("out", type=FILE)
@click.option("--quick", is_flag=True, help="A few clusters and plans: seconds instead of minutes.")
@click.option("--only", type=KIND, help="This kind alone.")
def record(out: Path, quick: bool, only: str | None) -> None:
    """Write what this checkout does to OUT."""
    for name in [each for each in os.environ if each.startswith("HOCKET_")]:
        del os.environ[name]
    kinds = recorder.recorded((only,) if only else recorder.KINDS, quick=quick)
    items = records.collected(kinds, lambda kind: note(f"recording {kind}"))
    records.write(out, items)
    failed = [each for each in items if each.kind == records.FAILED]
    for each in failed:
        note(f"{each.key} could not be recorded: {each.text}")
    note(f"{len(items):,} items in {out}")
    sys.exit(1 if failed else 0)


def rules(function: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs."),
        click.option("--only", type=KIND, help="This kind alone."),
        click.option(
            "--orders-by-worth", is_flag=True, help="Other orders are as good if simulated no slower."
        ),
        click.option("--tolerance", default=0.0, help="Relative, for numbers of plans, steps and orders."),
    ):
        function = option(function)
    return function


def report(
    before: Path, after: Path, *, tolerance: float, orders_by_worth: bool, only: str | None, as_json: bool
) -> bool:
    """Print the comparison of two records. Whether they are equal."""
    one, other = records.read(before), records.read(after)
    rules = Rules(tolerance, orders_by_worth)
    found = comparison.compared(one, other, rules, only)
    if as_json:
        click.echo(json.dumps(comparison.as_tree(found), indent=1))
    else:
        for line in comparison.told(found, one, other, shown=SHOWN, lines_max=LINES_MAX):
            click.echo(line)
    return found.equal


@unchanged.command()
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
@rules
def compare(before: Path, after: Path, **options: Any) -> None:
    """Say what differs between two records. Exit code 1: something does."""
    sys.exit(0 if report(before, after, **options) else 1)


@unchanged.command()
@click.argument("base")
@click.option("--quick", is_flag=True, help="A few clusters and plans: seconds instead of minutes.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Directory for both records.")
@rules
def replay(base: str, quick: bool, keep: Path | None, **options: Any) -> None:
    """Record commit BASE and this checkout, and compare. Exit code 1: something differs, or could not be recorded."""
    what = [*(["--quick"] if quick else []), *(["--only", options["only"]] if options["only"] else [])]
    with tempfile.TemporaryDirectory() as directory:
        into = (keep or Path(directory)).resolve()
        into.mkdir(parents=True, exist_ok=True)
        try:
            before, after, whole = commits.both(Path.cwd(), base, into, what, note)
        except (commits.ReplayError, subprocess.CalledProcessError) as error:
            note(f"Error: {error}")
            sys.exit(2)
        equal = report(before, after, **options)
    sys.exit(0 if equal and whole else 1)


if __name__ == "__main__":
    unchanged(prog_name="python -m tests.unchanged")

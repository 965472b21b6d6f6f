"""The commands of `python -m benches`: each module that defines `command`."""

from __future__ import annotations

import importlib
import pkgutil

import click

from hocket.cli.main import run


@click.group("benches", context_settings={"help_option_names": ["-h", "--help"]})
def benches() -> None:
    """Measure what docs/results.md shows, each number beside its target.

    Example: python -m benches policies --row two_level -o policies.json
    """


for _each in pkgutil.iter_modules(__path__, f"{__name__}."):
    _module = importlib.import_module(_each.name)
    if hasattr(_module, "command"):
        benches.add_command(_module.command)


def main() -> None:
    """Entry point, with the exit codes of `hocket`."""
    run(benches, "python -m benches")

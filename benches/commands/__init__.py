"""The commands of `python -m benches`, a module each."""

from __future__ import annotations

import click

from benches.commands import (
    autopilot,
    culprits,
    ddp,
    delays,
    directions,
    drawn,
    elastic,
    frameworks,
    kernels,
    late,
    latency,
    live,
    models,
    order_search,
    orders,
    owners,
    policies,
    predict,
    routes,
    sharded,
    simulate,
    start,
    strategies,
    summed,
    trainers,
)
from hocket.cli.main import run


@click.group("benches", context_settings={"help_option_names": ["-h", "--help"]})
def benches() -> None:
    """Measure what docs/results.md shows, each number beside its target.

    Example: python -m benches policies --row two_level -o policies.json
    """


for _each in (
    autopilot,
    culprits,
    ddp,
    delays,
    directions,
    drawn,
    elastic,
    frameworks,
    kernels,
    late,
    latency,
    live,
    models,
    order_search,
    orders,
    owners,
    policies,
    predict,
    routes,
    sharded,
    simulate,
    start,
    strategies,
    summed,
    trainers,
):
    benches.add_command(_each.command)


def main() -> None:
    """Entry point, with the exit codes of `hocket`."""
    run(benches, "python -m benches")

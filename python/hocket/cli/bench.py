"""`hocket bench`: compare with other libraries, in turns within one run."""

from __future__ import annotations

import click

from hocket.cli.benches import collectives, costs, methods


@click.group("bench")
def command() -> None:
    """Compare with other libraries; contenders take turns, so that only ratios matter.

    Example: hocket bench all_reduce --against gloo,mpi
    """


for _verb in (*collectives.COMMANDS, *costs.COMMANDS, *methods.COMMANDS):
    command.add_command(_verb)

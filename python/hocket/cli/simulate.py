"""`hocket simulate`: a step of a plan, a trace again, or a comparison of strategies, in virtual time on any network."""

from __future__ import annotations

import click

from hocket.cli.simulations import all_reduce, plan, sweep, trace


@click.group("simulate")
def command() -> None:
    """Predict step times on a cluster: of a plan, of a trace sent again, or of several strategies; or an all-reduce on any network.

    A job that cannot end is an error that names the stuck ranks, the chain of waits and the first op that never ended.

    Example: hocket simulate plan plan.json --cluster cluster.toml
    """


for _verb in (plan.command, trace.command, sweep.command, all_reduce.command):
    command.add_command(_verb)

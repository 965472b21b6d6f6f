"""What single parts of Hocket cost: the hook, the trace, verification."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import rounds_option, world_option
from hocket.cli.shared.output import publish


@click.command("hook")
@numbers_options
def hook(*, output: Path | None, as_json: bool) -> None:
    """What the readiness hook adds to backward, per gradient.

    Example: hocket bench hook
    """
    from hocket.bench.hook import measure  # noqa: PLC0415  # loads torch

    cost = measure()
    table = Table("per gradient", "µs")
    table.add_row("backward without a hook", f"{cost.backward_s * 1e6:.2f}")
    table.add_row("an empty Python hook adds", f"{cost.empty_python_hook_s * 1e6:.2f}")
    table.add_row("the readiness hook adds", f"{cost.readiness_hook_s * 1e6:.2f}")
    publish(
        (table,),
        {name: getattr(cost, name) for name in cost.__struct_fields__},
        as_json=as_json,
        output=output,
    )


@click.command("trace")
@world_option("Ranks on this machine.", least=2, default=4)
@rounds_option(60, "Steps with and without.")
@numbers_options
def trace(*, world: int, rounds: int, output: Path | None, as_json: bool) -> None:
    """What writing a trace adds to a training step.

    Example: hocket bench trace
    """
    from hocket.bench.trace import measure  # noqa: PLC0415  # loads what only this verb needs

    result = measure(world=world, rounds=rounds)
    table = Table("step", "median", "p10 to p90")
    for name in ("off", "on"):
        each = result[name]
        spread = f"{each['p10_s'] * 1e3:.2f} to {each['p90_s'] * 1e3:.2f}"
        table.add_row(f"trace {name}", f"{each['median_s'] * 1e3:.2f} ms", spread)
    table.add_row("on / off", f"{result['ratio']:.4f}")
    publish((table,), result, as_json=as_json, output=output)


@click.command("verify")
@numbers_options
def verify(*, output: Path | None, as_json: bool) -> None:
    """How long 64 ranks and 200 buckets take to compile and verify.

    Example: hocket bench verify
    """
    from hocket.bench.verify import measure  # noqa: PLC0415  # loads what only this verb needs

    cost = measure()
    sentence = (
        f"{cost.world} ranks, {cost.buckets} buckets of {cost.elements:,} elements: {cost.total_s:.2f} s"
    )
    result = {name: getattr(cost, name) for name in cost.__struct_fields__}
    publish((sentence,), result, as_json=as_json, output=output)


COMMANDS = [hook, trace, verify]

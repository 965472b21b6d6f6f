"""Costs of single parts of Hocket: the hook, the trace, verification, the planner."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import to_builtins
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
    from hocket.tools.bench.hook import measure  # noqa: PLC0415  # loads torch

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
    from hocket.tools.bench.trace import measure  # noqa: PLC0415  # loads what only this verb needs

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
    """How long 200 buckets of 64 and of 1,024 ranks take to compile and verify, from a plan and from a policy.

    A policy's include the tracing. Last comes the start of a job of 8 ranks on one host: the CPU time of all ranks
    together, and that of a rank that shares nothing.

    Example: hocket bench verify
    """
    from hocket.tools.bench.start import measure as measure_start  # noqa: PLC0415  # loads what only this verb needs
    from hocket.tools.bench.verify import measure, measure_policy  # noqa: PLC0415

    costs = [measure(), *(measure_policy(world=world) for world in (64, 1024))]
    table = Table("ranks", "from", "buckets", "elements", "time")
    for cost in costs:
        table.add_row(
            str(cost.world), cost.source, str(cost.buckets), f"{cost.elements:,}", f"{cost.total_s:.2f} s"
        )
    starts = [measure_start(source) for source in ("plan", "policy")]
    sentences = (
        f"start of {start.world} ranks on one host, {start.buckets} buckets of a {start.source}: "
        f"{start.all_s:.3f} s of CPU, {start.ratio:.2f} times that of one rank alone ({start.alone_s:.3f} s)"
        for start in starts
    )
    result = {
        "rows": [to_builtins(cost) for cost in costs],
        "starts": [{**to_builtins(start), "ratio": start.ratio} for start in starts],
    }
    publish((table, *sentences), result, as_json=as_json, output=output)


@click.command("planner")
@numbers_options
def planner(*, output: Path | None, as_json: bool) -> None:
    """How many whole plans the planner scores a second, and how near to the bound its plans are.

    For 64 ranks with 200 gradients and 1,024 ranks with 400, on hosts of two speeds in four racks. Two minutes.

    Example: hocket bench planner
    """
    from hocket.tools.bench.planner import measure  # noqa: PLC0415  # loads what only this verb needs

    costs = [measure(), measure(world=1024, variables=400, longer=False)]
    table = Table(
        "ranks",
        "gradients",
        "routes",
        "plan",
        "evaluations a second",
        "above the bound",
        "of a longer search",
    )
    for cost in costs:
        table.add_row(
            str(cost.world),
            str(cost.variables),
            str(cost.routes),
            f"{cost.total_s:.2f} s",
            "" if cost.evaluations_per_s is None else f"{cost.evaluations_per_s:,.0f}",
            f"{cost.gap:.1%}",
            "" if cost.longer is None else f"{cost.longer:.4f}",
        )
    publish((table,), {"rows": [to_builtins(cost) for cost in costs]}, as_json=as_json, output=output)


COMMANDS = [hook, trace, verify, planner]

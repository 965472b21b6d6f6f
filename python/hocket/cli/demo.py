"""`hocket demo`: train a real model on an emulated cluster, with DDP and with Hocket, and compare."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hocket import __version__, extras
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.shared.options import cluster_option, dir_option, json_option, made
from hocket.cli.shared.output import json_text
from hocket.errors import UsageError
from hocket.tools.demo.catalogue import LEADS, MODELS, STRATEGIES, WARM_UP_STEPS
from hocket.tools.demo.compare import Compared, Wanted, clear, compare, describe
from hocket.tools.demo.comparison import Comparison, Strategy, speedup
from hocket.tools.demo.emulation import Emulation, open_emulation
from hocket.tools.demo.screen import Screen
from hocket.tools.report import build, quantity
from hocket.tools.testbed import example_cluster

CLUSTER = "two-racks"
REPORT, NUMBERS = "report.html", "demo.json"
SIGNALLED = 128


@click.command("demo")
@click.option(
    "--model",
    type=click.Choice(list(MODELS)),
    default="transformer",
    show_default=True,
    help="What to train.",
)
@click.option(
    "--steps",
    type=click.IntRange(WARM_UP_STEPS + 1),
    metavar="N",
    help="Steps with each strategy.  [default: the model's]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    show_default=True,
    help="Trainings with each strategy.",
)
@click.option("--all-candidates", is_flag=True, help="Measure every plan that was considered, some minutes.")
@cluster_option("Cluster file (TOML) to emulate.  [default: two racks]")
@dir_option(
    "-o",
    "--output",
    text=f"Write the report, {NUMBERS} with all numbers, and artefacts here.",
    default="hocket-demo",
    show_default=True,
    callback=made,
)
@json_option
def command(
    *,
    model: str,
    steps: int | None,
    seeds: int,
    all_candidates: bool,
    cluster_path: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """Compare DDP, DDP in f16 and Hocket on a cluster that is emulated on this machine.

    Example: hocket demo --model digits
    """
    extras.need("torch", "hocket demo")
    if model == "digits":
        extras.need("sklearn", "model digits")
    cluster = files.read(cluster_path, Cluster) if cluster_path else example_cluster(CLUSTER)
    if any(host.slots != 1 for host in cluster.hosts) or len(cluster.hosts) < 2:
        raise UsageError("the demo trains one rank on each of at least two hosts: all `slots` must be 1")
    wanted = Wanted(
        model=model,
        steps=steps or MODELS[model].steps,
        seeds=seeds,
        all_candidates=all_candidates,
        output=output,
    )
    clear(output, also=(REPORT, NUMBERS))
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGHUP, _leave)
    console = Console(stderr=as_json)
    with Screen(console) as screen:
        screen.say(f"{MODELS[model].label}: {wanted.steps} steps with each strategy")
        with open_emulation(cluster) as emulation:
            screen.say(f"{describe(cluster)}: {emulation.title}")
            for remark in emulation.remarks:
                screen.say(f"note: {remark}")
            screen.say("")
            compared = compare(emulation, wanted, screen)
            numbers = _numbers(compared, wanted, emulation, screen.elapsed_s)
        report = build(compared.trace, output / REPORT)
    (output / NUMBERS).write_text(json_text(numbers))
    if as_json:
        click.echo(json_text(numbers), nl=False)
    _print(console, compared, wanted)
    minutes, seconds = divmod(round(screen.elapsed_s), 60)
    console.print(f"\nDone in {minutes}:{seconds:02d} min. Report: {report}", highlight=False, soft_wrap=True)


def _leave(number: int, _frame: FrameType | None) -> None:
    """End as after Ctrl-C, whatever the cause: contexts take the testbed down."""
    sys.exit(SIGNALLED + number)


def _print(console: Console, compared: Compared, wanted: Wanted) -> None:
    comparison = compared.comparison
    console.print()
    console.print(_table(comparison, wanted))
    console.print()
    for ours in sorted(_ours(comparison), key=lambda each: each.name != LEADS):
        gains = {each.label: speedup(comparison, ours.name, each.name) for each in _others(comparison)}
        if gains:
            gained = ", ".join(
                f"{quantity.digits(gain)} times those of {label}" for label, gain in gains.items()
            )
            console.print(f"{ours.label}: its steps per second are {gained}.", highlight=False)
    console.print(
        f"Waiting: what of a step is beyond the {quantity.seconds(compared.compute_s)} that it computes, as "
        f"profiled, the same for all. Times are medians, without the first {WARM_UP_STEPS} steps.",
        highlight=False,
    )
    console.print(f"The plan: {comparison.plan_reason}", highlight=False)
    if compared.quality is not None:
        console.print(_candidates(comparison, compared.plan.label))
        console.print(_verdict(compared), highlight=False)


def _ours(comparison: Comparison) -> list[Strategy]:
    return [each for each in comparison.strategies if STRATEGIES[each.name].script == "hocket"]


def _others(comparison: Comparison) -> list[Strategy]:
    return [each for each in comparison.strategies if STRATEGIES[each.name].script != "hocket"]


def _table(comparison: Comparison, wanted: Wanted) -> Table:
    """Return a table that fits 80 columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("\nstrategy", width=18)
    titles = (
        "\nsteps/s",
        f"\n{quantity.TIMES} DDP",
        "\nwaiting",
        "trunk,\na step",
        f"loss,\n{wanted.steps} steps",
    )
    for title in (*titles, f"held-out\n{comparison.metric_name}"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in comparison.strategies:
        spread = "" if each.metric_std is None else f" ± {quantity.digits(each.metric_std, 2)}"
        table.add_row(
            each.label,
            quantity.digits(each.steps_per_s),
            quantity.digits(speedup(comparison, each.name)),
            quantity.share(each.wait_share),
            quantity.size(each.trunk_bytes_per_step),
            quantity.digits(each.loss, 4),
            quantity.digits(each.metric, 4) + spread,
        )
    return table


def _candidates(comparison: Comparison, chosen: str) -> Table:
    table = Table("candidate", "predicted", "measured", "error", "", box=None, padding=(0, 2, 0, 0))
    for each in sorted(comparison.candidates, key=lambda each: each.measured_step_s or 0.0):
        measured_s = each.measured_step_s or 0.0
        table.add_row(
            each.label,
            quantity.seconds(each.predicted_step_s),
            quantity.seconds(measured_s),
            f"{100 * (each.predicted_step_s / measured_s - 1):+.1f} %",
            "chosen" if each.label == chosen else "",
        )
    return table


def _verdict(compared: Compared) -> str:
    found = compared.quality
    if found is None:
        return ""
    return (
        f"The chosen plan, {found.chosen}, is {100 * found.regret:.1f} % slower than the fastest measured, "
        f"{found.fastest}; median prediction error over {found.measured} candidates: "
        f"{100 * found.prediction_error_median:.1f} %."
    )


def _numbers(compared: Compared, wanted: Wanted, emulation: Emulation, elapsed_s: float) -> dict[str, Any]:
    """Return all findings, with the facts needed to repeat them."""
    comparison = compared.comparison
    return {
        "version": 1,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "emulation": emulation.title,
        "remarks": list(emulation.remarks),
        "steps": wanted.steps,
        "warm_up_steps": WARM_UP_STEPS,
        "seeds": wanted.seeds,
        "compute_s": compared.compute_s,
        "elapsed_s": elapsed_s,
        "speedup": {each.name: speedup(comparison, each.name) for each in comparison.strategies},
        "hocket_over": {
            ours.name: {each.name: speedup(comparison, ours.name, each.name) for each in _others(comparison)}
            for ours in _ours(comparison)
        },
        "comparison": msgspec.to_builtins(comparison),
        "cluster_given": msgspec.to_builtins(emulation.cluster),
        "cluster_measured": msgspec.to_builtins(compared.cluster),
        "plan": msgspec.to_builtins(compared.plan),
        "quality": msgspec.to_builtins(compared.quality),
    }


def _machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "hocket": __version__,
    }

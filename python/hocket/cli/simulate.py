"""`hocket simulate`: a plan's step in virtual time, on a cluster or on a network of any shape."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Gradient, Profile
from hocket.cli.shared.inputs import cluster_option, fidelity_option, profile_option
from hocket.cli.shared.output import console
from hocket.errors import UsageError

LINKS_SHOWN = 8


def _slow(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[int, float], ...]:
    slow = []
    for text in texts:
        rank, _, factor = text.partition(":")
        try:
            slow.append((int(rank), float(factor)))
        except ValueError:
            raise click.BadParameter(f"`{text}` is not RANK:FACTOR such as 3:2.5") from None
    return tuple(slow)


def _failures(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, float], ...]:
    failures = []
    for text in texts:
        link, _, at_s = text.rpartition("@")
        try:
            failures.append((link, float(at_s)))
        except ValueError:
            raise click.BadParameter(f"`{text}` is not LINK@SECONDS such as `node0 out@0.05`") from None
    return tuple(failures)


@click.command("simulate")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@cluster_option
@profile_option
@fidelity_option
@click.option("--steps", type=click.IntRange(1), default=1, show_default=True, help="Training steps.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="All chance comes from it."
)
@click.option(
    "--jitter",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="Latencies and engine times are longer by up to this share.",
)
@click.option("--slow", multiple=True, callback=_slow, help="RANK:FACTOR, a straggler; may be given again.")
@click.option(
    "--fail",
    "failures",
    multiple=True,
    callback=_failures,
    help="LINK@SECONDS, a link that dies; may be given again.",
)
@click.option(
    "--shaped",
    is_flag=True,
    help="Links as `hocket testbed` emulates them, with the bursts of its token buckets.",
)
@click.option(
    "--trace",
    "trace_path",
    type=click.Path(path_type=Path),
    help="Write a trace directory for `hocket report`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(
    *,
    plan_path: Path,
    cluster_path: Path,
    profile_path: Path | None,
    fidelity: str,
    steps: int,
    seed: int,
    jitter: float,
    slow: tuple[tuple[int, float], ...],
    failures: tuple[tuple[str, float], ...],
    shaped: bool,
    trace_path: Path | None,
    as_json: bool,
) -> None:
    """Predict the step time of PLAN on a cluster, bucket by bucket.

    A job that cannot end is an error that names the stuck ranks, the chain of waits and the first op that never ended.

    Example: hocket simulate plan.json --cluster cluster.toml --profile profile.json --trace simulated
    """
    from hocket.planners.search import neutral_profile  # noqa: PLC0415  # loads what only this verb needs
    from hocket.simulation import fidelity as levels  # noqa: PLC0415  # as above
    from hocket.simulation import flow  # noqa: PLC0415  # as above
    from hocket.simulation.conditions import Conditions, LinkChange  # noqa: PLC0415  # as above
    from hocket.simulation.networks import from_cluster  # noqa: PLC0415  # as above

    plan = files.read(plan_path, Plan)
    cluster = files.read(cluster_path, Cluster)
    profile = files.read(profile_path, Profile) if profile_path else neutral_profile(_gradients(plan))
    changes = tuple(LinkChange(link=link, at_s=at_s) for link, at_s in failures)
    conditions = Conditions(seed=seed, jitter=jitter, slow=slow, changes=changes)
    if fidelity == "closed-form":
        if conditions != Conditions(seed=seed) or steps > 1 or trace_path or shaped:
            raise UsageError(
                "the closed form knows one ideal step: leave out the other options, or use --fidelity flow"
            )
        outcome = levels.predict(plan, cluster, profile, fidelity="closed-form")
    else:
        network = from_cluster(cluster, plan.world, shaped=shaped)
        run = flow.predict(
            plan, network, profile, conditions=conditions, steps=steps, recorded=trace_path is not None
        )
        outcome = run.outcome
        if trace_path is not None:
            from hocket.simulation import record  # noqa: PLC0415  # loads NumPy

            record.write(
                trace_path,
                plan=plan,
                profile=profile,
                network=network,
                simulation=run.simulation,
                cluster=cluster,
            )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(outcome), indent=2))
        return
    shown = console()
    shown.print(
        f"{outcome.world} ranks, {outcome.network}, {outcome.fidelity}: {outcome.step_s * 1e3:.2f} ms a step, "
        f"{outcome.exposed_s * 1e3:.2f} ms of it waiting for communication",
        highlight=False,
    )
    if outcome.buckets:
        table = Table("bucket", "elements", "launched", "done", title="first step")
        for each in outcome.buckets:
            table.add_row(
                str(each.bucket),
                f"{each.elements:,}",
                f"{each.launched_s * 1e3:.2f} ms",
                f"{each.done_s * 1e3:.2f} ms",
            )
        shown.print(table)
    links = Table("link", "rate", "carries", "busy", title="busiest links")
    for load in outcome.loads[:LINKS_SHOWN]:
        links.add_row(
            load.link,
            f"{load.bit_per_s / 1e6:,.0f} Mbit/s",
            f"{load.bytes / 1e6:,.2f} MB",
            f"{load.busy:.0%}",
        )
    shown.print(links)
    if trace_path is not None:
        shown.print(f"Trace written to {trace_path}", highlight=False)


def _gradients(plan: Plan) -> list[Gradient]:
    """What the plan's buckets hold, all ready at once: for when no profile says more."""
    gradients = []
    for bucket in plan.buckets:
        sizes = [bucket.elements - len(bucket.gradients) + 1, *[1] * (len(bucket.gradients) - 1)]
        gradients += [
            Gradient(name=name, shape=(size,), dtype=bucket.dtype, ready_s=0.0, needed_s=0.0)
            for name, size in zip(bucket.gradients, sizes, strict=False)
        ]
    return gradients

"""`hocket simulate`: a plan's step, or a trace again, in virtual time on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from hocket.replay.run import Replayed
    from hocket.simulation.conditions import Conditions
    from hocket.simulation.fidelity import Fidelity
    from hocket.simulation.outcome import Outcome

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


def _switch(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    slots, _, slot_bytes = text.partition(":")
    try:
        return int(slots), int(slot_bytes)
    except ValueError:
        raise click.BadParameter(f"`{text}` is not SLOTS:BYTES such as 512:1024") from None


@click.command("simulate")
@click.argument("paths", metavar="PLAN|TRACE...", type=click.Path(path_type=Path), nargs=-1, required=True)
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
    "--aggregate",
    callback=_switch,
    help="SLOTS:BYTES, the switch sums all buckets in slots of so many bytes.",
)
@click.option(
    "--computation",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Of a trace: what lies between its messages takes so many times as long.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Of a trace: so many in place of those recorded, each computing as one of them.",
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
    paths: tuple[Path, ...],
    cluster_path: Path,
    profile_path: Path | None,
    fidelity: Fidelity,
    steps: int,
    seed: int,
    jitter: float,
    slow: tuple[tuple[int, float], ...],
    failures: tuple[tuple[str, float], ...],
    shaped: bool,
    aggregate: tuple[int, int] | None,
    computation: float,
    workers: int | None,
    trace_path: Path | None,
    as_json: bool,
) -> None:
    """Predict the step time of PLAN on a cluster, bucket by bucket; or send the messages of TRACE again there.

    A TRACE is a trace directory, or the files of a DLC trace, one per node: its messages, what they wait for and the gaps between.
    With --workers, of so many: a plan's programs for them, or parameter servers with copies of the recorded workers.

    A job that cannot end is an error that names the stuck ranks, the chain of waits and the first op that never ended.

    \b
    Example: hocket simulate plan.json --cluster cluster.toml --profile profile.json --trace simulated
    Example: hocket simulate worker*.txt server0.txt --cluster cluster.toml --workers 8
    """
    from hocket.planners.search import neutral_profile  # noqa: PLC0415  # loads what only this verb needs
    from hocket.simulation.conditions import Conditions, LinkChange  # noqa: PLC0415  # as above

    cluster = files.read(cluster_path, Cluster)
    changes = tuple(LinkChange(link=link, at_s=at_s) for link, at_s in failures)
    conditions = Conditions(seed=seed, jitter=jitter, slow=slow, changes=changes)
    if len(paths) > 1 or paths[0].suffix != ".json":
        if fidelity != "flow" or profile_path or steps > 1 or trace_path or aggregate:
            raise UsageError(
                "a trace has its own steps and gaps: leave out --fidelity, --profile, --steps, --trace, --aggregate"
            )
        from hocket.replay.predicted import predicted  # noqa: PLC0415  # loads what only traces need

        again = predicted(
            paths, cluster, workers=workers, computation=computation, conditions=conditions, shaped=shaped
        )
        _show_replayed(again, workers, as_json=as_json)
        return
    if computation != 1:
        raise UsageError("--computation is of a trace; a plan's computation is in its profile")
    if workers is not None:
        raise UsageError(
            "--workers is of a trace; a plan is for its own ranks\nhint: `hocket plan` makes one for others"
        )
    plan = files.read(paths[0], Plan)
    profile = files.read(profile_path, Profile) if profile_path else neutral_profile(_gradients(plan))
    outcome = _predicted(
        plan,
        cluster,
        profile,
        conditions,
        fidelity=fidelity,
        steps=steps,
        shaped=shaped,
        aggregate=aggregate,
        trace_path=trace_path,
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


def _predicted(
    plan: Plan,
    cluster: Cluster,
    profile: Profile,
    conditions: Conditions,
    *,
    fidelity: Fidelity,
    steps: int,
    shaped: bool,
    aggregate: tuple[int, int] | None,
    trace_path: Path | None,
) -> Outcome:
    from hocket.simulation import fidelity as levels  # noqa: PLC0415  # loads what only this verb needs
    from hocket.simulation import flow  # noqa: PLC0415  # as above
    from hocket.simulation.conditions import IDEAL  # noqa: PLC0415  # as above
    from hocket.simulation.networks import from_cluster  # noqa: PLC0415  # as above

    if aggregate is not None:
        from hocket.simulation import aggregation  # noqa: PLC0415  # as above

        if fidelity != "flow" or steps > 1 or trace_path or shaped:
            raise UsageError(
                "--aggregate is one step by flows: leave out --fidelity, --steps, --trace and --shaped"
            )
        switch = aggregation.Switch(slots=aggregate[0], slot_bytes=aggregate[1])
        network = from_cluster(cluster, plan.world)
        return aggregation.predict(plan, network, profile, switch, conditions=conditions)
    if fidelity != "flow":
        if msgspec.structs.replace(conditions, seed=0) != IDEAL or steps > 1 or trace_path or shaped:
            knows = "the closed form knows" if fidelity == "closed-form" else "SimGrid is given"
            raise UsageError(f"{knows} one ideal step: leave out the other options, or use --fidelity flow")
        return levels.predict(plan, cluster, profile, fidelity=fidelity)
    network = from_cluster(cluster, plan.world, shaped=shaped)
    run = flow.predict(
        plan, network, profile, conditions=conditions, steps=steps, recorded=trace_path is not None
    )
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
    return run.outcome


def _show_replayed(found: Replayed, workers: int | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return
    table = Table("", "median iteration of the slowest worker")
    table.add_row("recorded", f"{found.recorded_median_s * 1e3:.2f} ms")
    simulated = "simulated" if workers is None else f"simulated, workers: {workers}"
    table.add_row(simulated, f"{found.replayed_median_s * 1e3:.2f} ms")
    table.add_row("simulated / recorded", f"{found.ratio:.3f}")
    console().print(table)


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

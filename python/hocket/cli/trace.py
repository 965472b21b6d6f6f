"""`hocket trace`: what a run recorded, in numbers, or as a file for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hocket.artefacts import trace as artefact
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.files import read as read_file
from hocket.artefacts.trace import Kind, Trace, kind_name
from hocket.cli.shared.options import cluster_option, json_option
from hocket.cli.shared.output import publish
from hocket.cli.simulations.aggregate import aggregate_option
from hocket.errors import UsageError
from hocket.tools.formats import catalogue

if TYPE_CHECKING:
    from hocket.tools.analysis.analyse import Analysis
    from hocket.tools.simulation.aggregation import Switch


class KindTotal(Struct, frozen=True, kw_only=True):
    """Total of all records of one kind, of all ranks. Times of concurrent records add up."""

    kind: str
    count: int
    bytes: int
    time_s: float


class RankTotal(Struct, frozen=True, kw_only=True):
    """Total of one rank. `step_s` is the median; None without steps. `end`: why its file ends before its run does, `whole` if it
    does not; `limits`: bounds of the file, for people."""

    rank: int
    host: str
    records: int
    steps: int
    step_s: float | None
    missing: bool
    truncated: bool
    dropped: int
    end: str
    limits: tuple[str, ...]


class Summary(Struct, frozen=True, kw_only=True):
    """Summary of a trace in numbers. `step_s` is the median over the steps of all ranks; None without steps."""

    script: str
    started_at: str
    world: int
    records: int
    step_s: float | None
    kinds: tuple[KindTotal, ...]
    ranks: tuple[RankTotal, ...]


@click.group("trace")
def command() -> None:
    """Look at a trace directory, or convert it.

    Example: hocket trace show run1
    """


@command.command("convert")
@click.argument("source", type=click.Path(path_type=Path), metavar="IN")
@click.argument("output", type=click.Path(path_type=Path), metavar="OUT")
@click.option(
    "--format",
    "form",
    type=click.Choice(catalogue.WRITABLE),
    metavar="FORMAT",
    help=f"Format to write: {', '.join(catalogue.WRITABLE)}.  [default: what OUT's name says]",
)
@click.option("--strict", is_flag=True, help="Refuse malformed records and files that are cut off.")
def convert(*, source: Path, output: Path, form: str | None, strict: bool) -> None:
    """Write the trace IN as OUT, in another format, and say what is lost.

    Example: hocket trace convert worker0.txt worker0.parquet
    """
    to = form or catalogue.form_of(output)
    opened = catalogue.open_trace(source, strict=strict)
    with Console(stderr=True).status(f"converting {source} to {to}"):
        count = catalogue.convert(opened, output, to)
    for sentence in [
        *catalogue.complaints(opened, source),
        *(f"lost: {each}" for each in catalogue.losses(opened, to)),
    ]:
        click.echo(sentence, err=True)
    click.echo(f"Wrote {count} records to {output}")


@command.command("analyse")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@json_option
@click.option("--strict", is_flag=True, help="Refuse malformed records and files that are cut off.")
def analyse(*, files: tuple[Path, ...], as_json: bool, strict: bool) -> None:
    """Say what FILES show: sizes, volumes, arrivals, phases, servers, dependencies, the critical path, stragglers.

    FILES are a DLC trace's, one per node, or one trace of another kind: a directory, Parquet, Kineto, Chakra.

    Example: hocket trace analyse worker0.txt worker1.txt server0.txt --json > analysis.json
    """
    from hocket.tools.analysis.tables import tables  # noqa: PLC0415  # loads only when the verb runs

    found = _analyse(files, strict=strict)
    for note in found.notes:
        click.echo(note, err=True)
    missing = [f"Not in this trace: {each}." for each in found.not_applicable]
    publish((*tables(found), *missing), found, as_json=as_json)


@command.command("replay")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@cluster_option("Cluster file (TOML) to emulate.  [default: the cluster in the trace]")
@click.option(
    "--repeat",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    show_default=True,
    help="All of it so often in a row.",
)
@aggregate_option(
    "The switch of each rack sums workers' pushes to parameter servers, in so many slots of so many bytes (up to 1468)."
)
@json_option
def replay(
    *,
    files: tuple[Path, ...],
    cluster_path: Path | None,
    repeat: int,
    aggregate: Switch | None,
    as_json: bool,
) -> None:
    """Send what was sent in a trace, on real sockets of an emulated cluster, with its dependencies and gaps; needs root.

    FILES are a trace directory or the files of a DLC trace, one per node: workers are the first nodes, then servers.

    Example: hocket trace replay run1 --repeat 3
    """
    from hocket.tools.replay.run import replay as run  # noqa: PLC0415  # loads only when the verb runs
    from hocket.tools.replay.run import replay_traffic, traffic_of  # noqa: PLC0415

    cluster = None if cluster_path is None else read_file(cluster_path, Cluster)
    with Console(stderr=True).status("replaying"):
        trace = (
            artefact.read(files[0]) if len(files) == 1 and catalogue.recognise(files[0]) == "native" else None
        )
        if trace is not None and trace.run.plan is not None:
            if aggregate is not None:
                raise UsageError(
                    "switches sum the pushes of parameter servers, and this trace is of a plan\nhint: leave --aggregate out"
                )
            found = run(trace, cluster, repeat=repeat)
        else:
            cluster = cluster or (None if trace is None else trace.run.cluster)
            if cluster is None:
                raise UsageError(
                    f"{files[0]} does not say on which cluster it ran\nhint: give one with --cluster"
                )
            found = replay_traffic(traffic_of(files), cluster, repeat=repeat, aggregate=aggregate)
    table = Table("", "median step of the slowest rank")
    table.add_row("recorded", f"{found.recorded_median_s * 1e3:.2f} ms")
    table.add_row("replayed", f"{found.replayed_median_s * 1e3:.2f} ms")
    table.add_row("replayed / recorded", f"{found.ratio:.3f}")
    publish((table,), found, as_json=as_json)


@command.command("diff")
@click.argument("first", type=click.Path(path_type=Path), metavar="A")
@click.argument("second", type=click.Path(path_type=Path), metavar="B")
@json_option
def diff(*, first: Path, second: Path, as_json: bool) -> None:
    """Compare two traces, of any kinds that are read: B against A.

    Example: hocket trace diff before.txt after.txt
    """
    from hocket.tools.analysis.diff import diff as compare  # noqa: PLC0415  # loads only when the verb runs
    from hocket.tools.analysis.tables import diff_table  # noqa: PLC0415

    found = compare(_analyse((first,), strict=False), _analyse((second,), strict=False))
    names = {field.replace("_", " "): getattr(found, field) for field in found.__struct_fields__[1:]}
    lists = [f"{title}: {', '.join(each)}" for title, each in names.items() if each]
    publish((diff_table(found), *lists), found, as_json=as_json)


def _analyse(files: tuple[Path, ...], *, strict: bool) -> Analysis:
    from hocket.tools.analysis.analyse import analyse as ask  # noqa: PLC0415  # loads only when the verb runs

    with Console(stderr=True).status("reading") as status:
        return ask(files, strict=strict, progress=lambda count: status.update(f"{count:,} records read"))


@command.command("show")
@click.argument("directory", type=click.Path(path_type=Path))
@json_option
def show(*, directory: Path, as_json: bool) -> None:
    """Count what DIRECTORY holds: records, bytes and time of each kind, the median step of each rank.

    Example: hocket trace show run1
    """
    summary = summarise(artefact.read(directory))
    publish(_shown(summary), summary, as_json=as_json)


def summarise(trace: Trace) -> Summary:
    """Return the numbers of a trace. Raises ArtefactError when a rank's file cannot be read."""
    import numpy as np  # noqa: PLC0415  # loads only when the verb runs

    ranks = []
    step_times_s = []
    counts: dict[int, tuple[int, int, float]] = {}
    for rank, host in enumerate(trace.run.hosts):
        own = trace.rank_records(rank)
        spans_s = (own.records["end_ns"] - own.records["start_ns"]) / 1e9
        for kind in np.unique(own.records["kind"]).tolist():
            chosen = own.records["kind"] == kind
            count, moved, time_s = counts.get(kind, (0, 0, 0.0))
            moved += sum(own.records["bytes"][chosen].tolist())
            counts[kind] = count + int(chosen.sum()), moved, time_s + float(spans_s[chosen].sum())
        steps_s = spans_s[own.records["kind"] == Kind.STEP]
        step_times_s.append(steps_s)
        ranks.append(
            RankTotal(
                rank=rank,
                host=host,
                records=len(own.records),
                steps=len(steps_s),
                step_s=float(np.median(steps_s)) if len(steps_s) else None,
                missing=own.missing,
                truncated=own.truncated,
                dropped=own.dropped,
                end=own.end,
                limits=tuple(own.limits),
            )
        )
    all_steps_s = np.concatenate(step_times_s)
    return Summary(
        script=trace.run.script,
        started_at=trace.run.started_at,
        world=trace.run.world,
        records=sum(rank.records for rank in ranks),
        step_s=float(np.median(all_steps_s)) if len(all_steps_s) else None,
        kinds=tuple(
            KindTotal(kind=kind_name(kind), count=count, bytes=moved, time_s=time_s)
            for kind, (count, moved, time_s) in sorted(counts.items())
        ),
        ranks=tuple(ranks),
    )


def _shown(summary: Summary) -> tuple[str, Table, Table]:
    started = f", started {summary.started_at}" if summary.started_at else ""
    kinds = Table("kind", "records", "bytes", "time, all ranks", title="What was recorded")
    for each in summary.kinds:
        kinds.add_row(each.kind, f"{each.count:,}", f"{each.bytes:,}", f"{each.time_s:.3f} s")
    ranks = Table("rank", "host", "records", "steps", "median step", "", title="Ranks")
    for rank in summary.ranks:
        ranks.add_row(
            str(rank.rank),
            escape(rank.host),
            f"{rank.records:,}",
            str(rank.steps),
            _milliseconds(rank.step_s),
            _not_whole(rank),
        )
    ranks.add_row("all", "", f"{summary.records:,}", "", _milliseconds(summary.step_s), "")
    return f"{summary.script or 'a run'}: {summary.world} ranks{started}", kinds, ranks


def _milliseconds(time_s: float | None) -> str:
    return "" if time_s is None else f"{time_s * 1e3:.2f} ms"


def _not_whole(rank: RankTotal) -> str:
    remarks = []
    if rank.missing:
        remarks.append("no file")
    if rank.truncated:
        remarks.append("truncated: whole records counted")
    remarks += rank.limits
    if rank.dropped and rank.end == "whole":
        remarks.append(f"{rank.dropped:,} records dropped")
    return ", ".join(remarks)

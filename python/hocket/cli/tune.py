"""`hocket tune`: measure every algorithm of every collective on real ranks, for `auto` to choose by."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files, shipped
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Ladder, Tuning
from hocket.cli.shared.inputs import python_option, sizes_given, ssh_option, store_option, tuning_option
from hocket.cli.shared.output import bars, console
from hocket.errors import UsageError
from hocket.launch import address as addresses
from hocket.launch import hosts as hosts_file
from hocket.launch.processes import ProcessSpec
from hocket.launch.remote import processes_over, store_for
from hocket.measure.regret import Regret, regrets
from hocket.measure.tune import AGENT, COLLECTIVES, SIZES_BYTES, Wanted, empty, tune
from hocket.report import quantity

BY = {
    "engine": "",
    "thread": ", by the calling threads",
    "thread_registered": ", by the calling threads, registered",
}
PATH = click.Path(path_type=Path, dir_okay=False)


@click.command("tune")
@click.option("-n", "--world", type=click.IntRange(2), help="Ranks; default 2, or all slots.")
@click.option("--hosts", type=PATH, help="Hosts file: `NAME [slots=N]` a line, over ssh; else this machine.")
@ssh_option
@python_option
@store_option
@click.option("--cluster", "cluster_path", type=PATH, help="What a probe found of the hosts.")
@click.option("--emulate", is_flag=True, help="On this machine, emulate the cluster's network; needs root.")
@click.option(
    "--collective",
    "collectives",
    multiple=True,
    type=click.Choice(COLLECTIVES),
    help="One alone; may be given again.",
)
@click.option("--sizes", callback=sizes_given, help="Bytes of a rank's buffer.  [default: 4KiB to 25MB]")
@click.option(
    "--rounds", type=click.IntRange(1), default=15, show_default=True, help="Turns of each algorithm."
)
@click.option(
    "-o", "--output", type=PATH, help="Write the tuning here (JSON), after every point; what it has is kept."
)
@click.option("--again", is_flag=True, help="Measure again what the file has.")
@click.option(
    "--check", is_flag=True, help="Write nothing: say what choosing by --tuning costs against the best."
)
@tuning_option
@click.option("--json", "as_json", is_flag=True, help="Print as JSON instead of tables.")
def command(  # one argument an option
    *,
    world: int | None,
    hosts: Path | None,
    ssh: str,
    interpreter: str,
    store: str | None,
    cluster_path: Path | None,
    emulate: bool,
    collectives: tuple[str, ...],
    sizes: tuple[int, ...],
    rounds: int,
    output: Path | None,
    again: bool,
    check: bool,
    tuning_path: Path | None,
    as_json: bool,
) -> None:
    """Measure all algorithms in turns, at sizes from 4 KiB to 25 MB, minutes long; break it off and it goes on where it was.

    Each run adds a network to the file: two ranks of one host, four, an emulated cluster. Jobs take the nearest.

    Example: hocket tune -n 4 -o tuning.json
    """
    if emulate and (cluster_path is None or hosts is not None):
        raise UsageError(
            "--emulate makes the network of --cluster on this machine\nhint: give --cluster and no --hosts"
        )
    if check and output is not None:
        raise UsageError("--check writes no tuning\nhint: leave out --output")
    if tuning_path is not None and not check:
        raise UsageError("--tuning is what --check judges\nhint: --output names the file that is written")
    cluster = None if cluster_path is None else files.read(cluster_path, Cluster)
    known = files.read(output, Tuning) if output is not None and output.exists() else empty()
    with contextlib.ExitStack() as stack:
        ranks = (
            stack.enter_context(_emulated(cluster, world))
            if emulate and cluster is not None
            else _real(hosts, world, ssh=ssh, interpreter=interpreter, store=store, cluster=cluster)
        )
        wanted = Wanted.of(ranks.hosts, cluster, collectives or COLLECTIVES, sizes or SIZES_BYTES)
        if again:
            known = wanted.removed_from(known)
        bar = stack.enter_context(bars())
        task = bar.add_task(f"{len(ranks.hosts)} ranks", total=None)
        tuning = tune(
            ranks.processes,
            wanted,
            known=known,
            rounds=rounds,
            cluster=cluster,
            store=ranks.store,
            serve=ranks.serve,
            progress=lambda done, total, what: bar.update(
                task, completed=done, total=total, description=what
            ),
            keep=lambda each: None if output is None else files.write(output, each),
        )
    measured = wanted.measured_in(tuning)
    if check:
        by = shipped.tuning() if tuning_path is None else files.read(tuning_path, Tuning)
        _print_regrets(regrets(by, measured), as_json=as_json)
        return
    if as_json:
        click.echo(files.encode(tuning), nl=False)
        return
    for ladder in measured:
        _print(ladder)
    if output:
        console().print(f"Tuning written to {output}", highlight=False)


@dataclass(frozen=True, kw_only=True)
class _Ranks:
    hosts: Sequence[str]
    processes: Sequence[ProcessSpec]
    store: str | None = None
    serve: bool = True


def _real(
    hosts: Path | None,
    world: int | None,
    *,
    ssh: str,
    interpreter: str,
    store: str | None,
    cluster: Cluster | None,
) -> _Ranks:
    argv = [interpreter, *AGENT[1:]]
    if hosts is None:
        if cluster is not None and len(cluster.hosts) > 1:
            raise UsageError("a cluster of several hosts, and one machine\nhint: --hosts, or --emulate")
        name = cluster.hosts[0].name if cluster is not None else socket.gethostname()
        names = [name] * (world or 2)
        return _Ranks(hosts=names, processes=[ProcessSpec(argv=argv, host=name) for name in names])
    names = hosts_file.place(hosts_file.read(hosts), world)
    return _Ranks(
        hosts=names, processes=processes_over(ssh, names, argv, interpreter), store=store_for(names, store)
    )


@contextlib.contextmanager
def _emulated(cluster: Cluster, world: int | None) -> Iterator[_Ranks]:
    from hocket.demo.bed import open_bed, ranks  # noqa: PLC0415  # loads what only --emulate needs

    names = [host.name for host in cluster.hosts for _ in range(host.slots)][:world]
    if world is not None and len(names) < world:
        raise UsageError(f"{world} ranks, but the cluster has {len(names)} slots")
    with open_bed(cluster) as bed:
        for remark in bed.remarks:
            click.echo(f"note: {remark}", err=True)
        yield _Ranks(
            hosts=names,
            processes=ranks(bed, names, AGENT),
            store=addresses.join(bed.address(names[0]), bed.port()),
            serve=False,
        )


def _print(ladder: Ladder) -> None:
    """A row a size: medians, and the spread of the fastest."""
    names = list(dict.fromkeys(timing.algorithm for point in ladder.points for timing in point.timings))
    shape = ladder.shape
    of = f"{shape.ranks} ranks on {shape.hosts} host{'s' if shape.hosts > 1 else ''}"
    by = BY[ladder.runner]
    table = Table("size", *names, "p10 to p90", title=f"{ladder.collective}, {of}{by}", title_justify="left")
    for point in ladder.points:
        best = min(point.timings, key=lambda timing: timing.median_s)
        medians = {timing.algorithm: timing.median_s for timing in point.timings}
        cells = [
            "" if name not in medians
            else f"[bold]{quantity.seconds(medians[name])}[/bold]" if name == best.algorithm
            else quantity.seconds(medians[name])
            for name in names
        ]  # fmt: skip
        spread = f"{quantity.seconds(best.p10_s)} to {quantity.seconds(best.p90_s)}"
        table.add_row(quantity.size(point.size_bytes), *cells, spread)
    console().print(table)


def _print_regrets(found: Sequence[Regret], *, as_json: bool) -> None:
    if as_json:
        click.echo(files.json_of(found), nl=False)
        return
    table = Table("collective", "size", "chosen", "", "best", "", "regret", "worst / best")
    for each in found:
        table.add_row(
            f"{each.collective}{BY[each.runner]}",
            quantity.size(each.size_bytes),
            each.chosen,
            quantity.seconds(each.chosen_s),
            each.best,
            quantity.seconds(each.best_s),
            f"{each.regret:.1%}",
            f"{each.worst_s / each.best_s:.1f}",
        )
    console().print(table)
    if found:
        ordered = sorted(each.regret for each in found)
        click.echo(
            f"{len(found)} points: median regret {ordered[len(ordered) // 2]:.1%}, largest {ordered[-1]:.1%}"
        )

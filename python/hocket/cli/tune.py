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
from hocket.cli.shared.options import (
    Remote,
    cluster_option,
    json_option,
    output_option,
    remote_options,
    rounds_option,
    tuning_option,
    world_option,
)
from hocket.cli.shared.output import bars, publish
from hocket.cli.shared.values import SIZES
from hocket.errors import UsageError
from hocket.job.store import address as addresses
from hocket.start import hosts as hosts_file
from hocket.start.processes import ProcessSpec
from hocket.tools.report import quantity
from hocket.tools.tuning.regret import Regret, regrets
from hocket.tools.tuning.tune import AGENT, COLLECTIVES, SIZES_BYTES, Wanted, empty, tune

BY = {
    "engine": "",
    "thread": ", by the calling threads",
    "thread_registered": ", by the calling threads, registered",
}


@click.command("tune")
@world_option("Number of ranks.  [default: 2, or all slots]", least=2)
@remote_options
@cluster_option("Cluster file (TOML): what a probe found of the hosts.")
@click.option("--emulate", is_flag=True, help="On this machine, emulate the cluster's network; needs root.")
@click.option(
    "--collective",
    "collectives",
    multiple=True,
    type=click.Choice(COLLECTIVES),
    metavar="NAME",
    help=f"One only of {', '.join(COLLECTIVES)}; repeatable.",
)
@click.option(
    "--sizes",
    type=SIZES,
    metavar="SIZE,...",
    help="Bytes of a rank's buffer, such as 4KB,1MB.  [default: 4KiB to 25MB]",
)
@rounds_option(15, "Turns of each algorithm.")
@output_option("Write the tuning here (JSON), after every point; what it has is kept.")
@click.option("--again", is_flag=True, help="Measure again what the file has.")
@click.option(
    "--check", is_flag=True, help="Write nothing: say what choosing by --tuning costs against the best."
)
@tuning_option("With --check: tuning file (JSON) to judge.  [default: the one that comes with Hocket]")
@json_option
def command(  # one argument per option
    *,
    world: int | None,
    remote: Remote,
    cluster_path: Path | None,
    emulate: bool,
    collectives: tuple[str, ...],
    sizes: tuple[int, ...] | None,
    rounds: int,
    output: Path | None,
    again: bool,
    check: bool,
    tuning_path: Path | None,
    as_json: bool,
) -> None:
    """Measure all algorithms in turns, at sizes from 4 KiB to 25 MB, for minutes; after an interruption the same command resumes.

    Each run adds a network to the file: two ranks of one host, four, an emulated cluster. Jobs take the nearest.

    Example: hocket tune -n 4 -o tuning.json
    """
    if emulate and (cluster_path is None or remote.hosts is not None):
        raise UsageError(
            "--emulate makes the network of --cluster on this machine\nhint: give --cluster and no --hosts"
        )
    if check and output is not None:
        raise UsageError("--check writes no tuning\nhint: leave out --output")
    if tuning_path is not None and not check:
        raise UsageError("--tuning is what --check judges\nhint: --output names the file that is written")
    cluster = None if cluster_path is None else files.read(cluster_path, Cluster)
    by = shipped.tuning() if tuning_path is None else files.read(tuning_path, Tuning)
    known = files.read(output, Tuning) if output is not None and output.exists() else empty()
    with contextlib.ExitStack() as stack:
        ranks = (
            stack.enter_context(_emulated(cluster, world))
            if emulate and cluster is not None
            else _real(remote, world, cluster)
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
        found = regrets(by, measured)
        publish(_regrets(found), found, as_json=as_json)
        return
    written = (f"Tuning written to {output}",) if output else ()
    publish((*map(_table, measured), *written), tuning, as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class _Ranks:
    hosts: Sequence[str]
    processes: Sequence[ProcessSpec]
    store: str | None = None
    serve: bool = True


def _real(remote: Remote, world: int | None, cluster: Cluster | None) -> _Ranks:
    argv = [remote.interpreter, *AGENT[1:]]
    if remote.hosts is None:
        if cluster is not None and len(cluster.hosts) > 1:
            raise UsageError("a cluster of several hosts, and one machine\nhint: --hosts, or --emulate")
        name = cluster.hosts[0].name if cluster is not None else socket.gethostname()
        names = [name] * (world or 2)
        return _Ranks(hosts=names, processes=[ProcessSpec(argv=argv, host=name) for name in names])
    names = hosts_file.place(hosts_file.read(remote.hosts), world)
    return _Ranks(hosts=names, processes=remote.processes(names, argv), store=remote.store_for(names))


@contextlib.contextmanager
def _emulated(cluster: Cluster, world: int | None) -> Iterator[_Ranks]:
    from hocket.tools.demo.emulation import open_emulation, ranks  # noqa: PLC0415  # loads what only --emulate needs

    names = [host.name for host in cluster.hosts for _ in range(host.slots)][:world]
    if world is not None and len(names) < world:
        raise UsageError(f"{world} ranks, but the cluster has {len(names)} slots")
    with open_emulation(cluster) as emulation:
        for remark in emulation.remarks:
            click.echo(f"note: {remark}", err=True)
        yield _Ranks(
            hosts=names,
            processes=ranks(emulation, names, AGENT),
            store=addresses.join(emulation.address(names[0]), emulation.port()),
            serve=False,
        )


def _table(ladder: Ladder) -> Table:
    """Return one row per size: medians, and the spread of the fastest."""
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
    return table


def _regrets(found: Sequence[Regret]) -> list[Table | str]:
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
    if not found:
        return [table]
    ordered = sorted(each.regret for each in found)
    median, largest = ordered[len(ordered) // 2], ordered[-1]
    return [table, f"{len(found)} points: median regret {median:.1%}, largest {largest:.1%}"]

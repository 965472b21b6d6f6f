"""`hocket probe`: measure the network between hosts, and write what was found as a cluster file."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import click
import msgspec
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.shared.options import Remote, json_option, output_option, remote_options, world_option
from hocket.cli.shared.output import bars, publish, rate_text
from hocket.cli.shared.values import RATE, SECONDS
from hocket.errors import UsageError
from hocket.measure.rounds import rounds_of
from hocket.start import hosts as hosts_file
from hocket.start.processes import ProcessSpec
from hocket.start.remote import reachable
from hocket.tools.probe import fping
from hocket.tools.probe.certainty import within
from hocket.tools.probe.hosts import AGENT, probe_hosts
from hocket.tools.probe.network import estimate_s
from hocket.tools.probe.options import LIMIT_BIT_PER_S, PAIR_S, ProbeOptions, Rates
from hocket.tools.probe.saved import Saved, beside
from hocket.tools.probe.steps import Progress as Told

HOSTS_SHOWN_MAX = 16
"""Limit of hosts in a printed matrix; larger ones do not fit a terminal, and the file has them."""


@click.command("probe")
@world_option("Ranks that the job will have.  [default: all slots of --hosts, or 1]")
@remote_options
@click.option(
    "--rates",
    type=click.Choice(["trains", "tcp"]),
    default="trains",
    show_default=True,
    help="By trains of datagrams, within --limit; or by TCP, which loads the network and shows what flows take from others.",
)
@click.option(
    "--limit",
    "limit_bit_per_s",
    type=RATE,
    default=LIMIT_BIT_PER_S,
    metavar="RATE",
    help="What datagrams may take of a host's link.  [default: 100Mbit]",
)
@click.option(
    "--pair-budget",
    "pair_s",
    type=SECONDS,
    default=PAIR_S,
    show_default=True,
    metavar="SECONDS",
    help="The longest that the latency of a pair is asked for, each direction; mostly it is known to 2 % long before.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Many hosts: measure to N landmarks, complete the rest, and say how wrong that is.",
)
@click.option("--skip-unreachable", is_flag=True, help="Leave out hosts of --hosts that ssh does not reach.")
@click.option(
    "--fping", "by_fping", is_flag=True, help="No agents: latencies by fping over ssh; needs --link."
)
@click.option(
    "--link",
    "link_bit_per_s",
    type=RATE,
    metavar="RATE",
    help="With --fping: rate of every host's link, such as 10Gbit.",
)
@output_option("Write the cluster here (TOML). After an interruption the same command resumes.")
@json_option
def command(
    *,
    world: int | None,
    remote: Remote,
    rates: Rates,
    limit_bit_per_s: float,
    pair_s: float,
    sample: int | None,
    skip_unreachable: bool,
    by_fping: bool,
    link_bit_per_s: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure latency, bandwidth, racks and trunks between the hosts of a job, some seconds long.

    Without --hosts this machine alone is measured, with -n slots.

    Example: hocket probe --hosts hosts.txt -o cluster.toml
    """
    options = ProbeOptions(rates=rates, limit_bit_per_s=limit_bit_per_s, pair_s=pair_s, sample=sample or 0)
    if by_fping != (link_bit_per_s is not None):
        raise click.UsageError("--fping and --link belong together: fping measures no rates")
    if by_fping and (remote.hosts is None or sample):
        raise click.UsageError("--fping is for all pairs of --hosts")
    if remote.hosts is None:
        names = [socket.gethostname()]
        slots = {names[0]: world or 1}
    else:
        listed = hosts_file.read(remote.hosts)
        names = list(dict.fromkeys(hosts_file.place(listed, world)))
        slots = {host.name: host.slots for host in listed}
        names = _reached(remote.ssh, names) if skip_unreachable else names
    options.check(len(names))
    notes: list[str] = []
    with (
        Saved(beside(output), names, options, tool="fping" if by_fping else "agents")
        if output
        else nullcontext() as saved
    ):
        if saved is not None and saved.steps:
            click.echo(f"going on behind {len(saved.steps)} steps of an interrupted probe", err=True)
        if link_bit_per_s is not None:
            measured = _shown(
                len(names),
                rounds_of(len(names)) * fping.STEP_S,
                lambda progress: fping.probe_by_fping(
                    names,
                    ssh=remote.ssh,
                    link_bit_per_s=link_bit_per_s,
                    pair_s=pair_s,
                    saved=saved,
                    progress=progress,
                    note=notes.append,
                ),
            )
            slots = {name.rpartition("@")[2]: count for name, count in slots.items()}
        else:
            argv = [remote.interpreter, *AGENT[1:]]
            here = [ProcessSpec(argv=argv, host=name) for name in names]
            measured = _shown(
                len(names),
                estimate_s(len(names), options=options),
                lambda progress: probe_hosts(
                    here if remote.hosts is None else remote.processes(names, argv),
                    store=remote.store if remote.hosts is None else remote.store_for(names),
                    options=options,
                    saved=saved.steps if saved is not None else (),
                    keep=saved.add if saved is not None else None,
                    progress=progress,
                    note=notes.append,
                ),
            )
        cluster = msgspec.structs.replace(
            measured,
            hosts=tuple(msgspec.structs.replace(host, slots=slots[host.name]) for host in measured.hosts),
        )
        if output and saved is not None:
            files.write(output, cluster)
            saved.finished()
    for note in notes:
        click.echo(f"note: {note}", err=True)
    written = (f"Cluster written to {output}",) if output else ()
    publish((*_tables(cluster), *written), cluster, as_json=as_json)


def _reached(ssh: str, names: Sequence[str]) -> list[str]:
    """Return the reachable hosts; print the others."""
    there = reachable(ssh, names)
    gone = [name for name, is_there in zip(names, there, strict=True) if not is_there]
    if len(gone) == len(names):
        raise UsageError(f"probe: none of the hosts is reached by `{ssh}`: {', '.join(gone)}")
    if gone:
        click.echo(f"note: left out, since they are not reached: {', '.join(gone)}", err=True)
    return [name for name in names if name not in gone]


def _shown(count: int, estimated_s: float, measure: Callable[[Told], Cluster]) -> Cluster:
    """Run with a progress bar on standard error."""
    with bars() as bar:
        about = f"{count} host{'s' if count > 1 else ''}, about {estimated_s:.0f} s"
        task = bar.add_task(about, total=None)

        def progress(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{about}: {what}")

        return measure(progress)


def _tables(cluster: Cluster) -> list[Table]:
    trunks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
    table = Table("host", "slots", "rack", "own link", "rack's trunk")
    for host in cluster.hosts:
        trunk = trunks.get(host.rack)
        trunk_text = "not shared" if trunk is None else rate_text(trunk)
        table.add_row(host.name, str(host.slots), host.rack, rate_text(host.bandwidth_bit_per_s), trunk_text)
    shown = [table]
    if 1 < len(cluster.hosts) <= HOSTS_SHOWN_MAX:
        names = [host.name for host in cluster.hosts]
        rates = [[rate_text(rate) for rate in row] for row in cluster.bandwidth_bit_per_s]
        delays = [[f"{delay * 1e6:.0f} µs" for delay in row] for row in cluster.latency_s]
        if cluster.latency_precision:
            delays = [
                [f"{delay}, {within(part)}" for delay, part in zip(*rows, strict=True)]
                for rows in zip(delays, cluster.latency_precision, strict=True)
            ]
        if rates:
            shown.append(_matrix("one flow, from row to column", names, rates))
        shown.append(_matrix("one way, half the round trip", names, delays))
        if cluster.streams:
            counts = [[str(count) for count in row] for row in cluster.streams]
            shown.append(
                _matrix("TCP connections that fill the way: `hocket run --cluster` opens them", names, counts)
            )
    return shown


def _matrix(title: str, names: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    table = Table("", *names, title=title, title_justify="left")
    for index, (name, row) in enumerate(zip(names, cells, strict=True)):
        table.add_row(name, *("" if column == index else cell for column, cell in enumerate(row)))
    return table

"""`hocket probe`: measure the network between hosts, and write what was found as a cluster file."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.shared.output import console
from hocket.launch import hosts as hosts_file
from hocket.launch.processes import ProcessSpec
from hocket.launch.remote import SSH, processes_over, store_for
from hocket.measure.hosts import AGENT, probe_hosts
from hocket.measure.network import estimate_s

HOSTS_SHOWN_MAX = 16
"""Matrices of more hosts do not fit a terminal; the file has them."""


@click.command("probe")
@click.option(
    "--hosts", type=click.Path(path_type=Path), help="Hosts file: `NAME [slots=N]` a line, over ssh."
)
@click.option(
    "-n", "--world", type=click.IntRange(1), help="Ranks that the job will have; default: all slots."
)
@click.option("--ssh", default=SSH, show_default=True, help="Command that reaches a host.")
@click.option(
    "--python", "interpreter", default=sys.executable, help="Python of the hosts; default: this one."
)
@click.option("--store", help="ADDRESS[:PORT] of this machine that all hosts reach; default: found out.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the cluster here (TOML).")
@click.option("--json", "as_json", is_flag=True, help="Print the cluster as JSON instead of tables.")
def command(
    *,
    hosts: Path | None,
    world: int | None,
    ssh: str,
    interpreter: str,
    store: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure latency, bandwidth, racks and trunks between the hosts of a job, some seconds long.

    Without --hosts this machine alone is measured, with -n slots.

    Example: hocket probe --hosts hosts.txt -o cluster.toml
    """
    argv = [interpreter, *AGENT[1:]]
    if hosts is None:
        slots = {socket.gethostname(): world or 1}
        processes = [ProcessSpec(argv=argv, host=name) for name in slots]
    else:
        listed = hosts_file.read(hosts)
        names = list(dict.fromkeys(hosts_file.place(listed, world)))
        slots = {host.name: host.slots for host in listed}
        processes = processes_over(ssh, names, argv)
        store = store_for(names, store)
    notes: list[str] = []
    measured = _probe(processes, store, notes)
    cluster = msgspec.structs.replace(
        measured,
        hosts=tuple(msgspec.structs.replace(host, slots=slots[host.name]) for host in measured.hosts),
    )
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if output:
        files.write(output, cluster)
    if as_json:
        click.echo(msgspec.json.encode(cluster))
        return
    _print(cluster)
    if output:
        console().print(f"Cluster written to {output}", highlight=False)


def _probe(processes: Sequence[ProcessSpec], store: str | None, notes: list[str]) -> Cluster:
    """With a progress bar on standard error; `notes` gains what a person should know."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        count = len(processes)
        about = f"{count} host{'s' if count > 1 else ''}, about {estimate_s(count):.0f} s"
        task = bar.add_task(about, total=None)

        def progress(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{about}: {what}")

        return probe_hosts(processes, store=store, progress=progress, note=notes.append)


def _print(cluster: Cluster) -> None:
    shown = console()
    trunks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
    table = Table("host", "slots", "rack", "own link", "rack's trunk")
    for host in cluster.hosts:
        trunk = trunks.get(host.rack)
        trunk_text = "not shared" if trunk is None else _rate(trunk)
        table.add_row(host.name, str(host.slots), host.rack, _rate(host.bandwidth_bit_per_s), trunk_text)
    shown.print(table)
    if 1 < len(cluster.hosts) <= HOSTS_SHOWN_MAX:
        names = [host.name for host in cluster.hosts]
        rates = [[_rate(rate) for rate in row] for row in cluster.bandwidth_bit_per_s]
        delays = [[f"{delay * 1e6:.0f} µs" for delay in row] for row in cluster.latency_s]
        shown.print(_matrix("one flow, from row to column", names, rates))
        shown.print(_matrix("one way, half the round trip", names, delays))


def _matrix(title: str, names: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    table = Table("", *names, title=title, title_justify="left")
    for index, (name, row) in enumerate(zip(names, cells, strict=True)):
        table.add_row(name, *("" if column == index else cell for column, cell in enumerate(row)))
    return table


def _rate(bit_per_s: float) -> str:
    if bit_per_s >= 1e9:
        return f"{bit_per_s / 1e9:.2f} Gbit/s"
    return f"{bit_per_s / 1e6:.1f} Mbit/s"

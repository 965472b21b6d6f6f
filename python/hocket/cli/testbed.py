"""`hocket testbed`: emulate a cluster of hosts and racks on this machine, for any program."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.shared.options import json_option
from hocket.cli.shared.output import publish, rate_text
from hocket.errors import TestbedError, UsageError
from hocket.tools.testbed import Testbed, example_cluster, keeper

CLUSTER = click.argument("cluster")
START_TIMEOUT_S = 15.0


@click.group("testbed")
def command() -> None:
    """Network namespaces with the hosts, racks and link rates of a cluster file.

    CLUSTER is a file, or the name of a packaged cluster: two-racks.

    Example: hocket testbed run --host node0 two-racks -- ping -c 3 10.77.0.2
    """


@command.command("up")
@CLUSTER
@json_option
def up(*, cluster: str, as_json: bool) -> None:
    """Bring CLUSTER up and leave it up; one at a time.

    Example: hocket testbed up two-racks
    """
    read(cluster)
    keeper.start(cluster, START_TIMEOUT_S)
    _show(as_json=as_json)


@command.command("down")
def down() -> None:
    """Take down what `up` brought up, and all that runs there.

    Example: hocket testbed down
    """
    click.echo("testbed is down" if keeper.stop(START_TIMEOUT_S) else "no testbed was up")


@command.command("show")
@json_option
def show(*, as_json: bool) -> None:
    """The hosts of the testbed that is up: name, rack, address, rate, and how to run something there.

    Example: hocket testbed show --json
    """
    _show(as_json=as_json)


@command.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--host", metavar="NAME", help="Run on this host; default: the first.")
@click.option("--each", is_flag=True, help="Run on every host at once, output marked with the host's name.")
@CLUSTER
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
def run(*, host: str | None, each: bool, cluster: str, argv: tuple[str, ...]) -> None:
    """Run a command in CLUSTER, brought up for it and removed after it; HOCKET_HOST names the host.

    The exit code is the command's (with --each: the first that is not 0).

    Example: hocket testbed run --each two-racks -- ip -brief address
    """
    loaded = read(cluster)
    if host is not None and host not in {known.name for known in loaded.hosts}:
        raise UsageError(f"the cluster has no host `{host}`")
    names = [known.name for known in loaded.hosts] if each else [host or loaded.hosts[0].name]
    argv = argv[1:] if argv[0] == "--" else argv
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Testbed(loaded) as bed:
        piped = subprocess.PIPE if each else None
        children = [
            bed.popen(name, argv, stdout=piped, stderr=subprocess.STDOUT if each else None) for name in names
        ]
        readers = [
            threading.Thread(target=_mark, args=(name, child.stdout), daemon=True)
            for name, child in zip(names, children, strict=True)
            if child.stdout is not None
        ]
        for reader in readers:
            reader.start()
        codes = [child.wait() for child in children]
        for reader in readers:
            reader.join(1.0)
    sys.exit(next((code if code > 0 else 128 - code for code in codes if code != 0), 0))


def read(cluster: str) -> Cluster:
    """Read a cluster file, or a packaged cluster by name."""
    path = Path(cluster)
    return files.read(path, Cluster) if path.suffix or path.exists() else example_cluster(cluster)


def _mark(name: str, lines: IO[bytes]) -> None:
    for line in lines:
        click.echo(f"[{name}] {line.decode(errors='replace').rstrip()}")


def _show(*, as_json: bool) -> None:
    state = keeper.state()
    if state is None:
        raise TestbedError("no testbed is up\nhint: hocket testbed up CLUSTER")
    table = Table("host", "rack", "address", "own link", "run something there")
    for host in state.hosts:
        rate = rate_text(host.bandwidth_bit_per_s)
        table.add_row(host.name, host.rack, host.address, rate, " ".join(host.command) + " CMD")
    publish((table,), state, as_json=as_json)

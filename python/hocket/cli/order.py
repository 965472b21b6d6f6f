"""`hocket order`: find the order of hosts in which collectives cost least, and hand it to a launcher."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.cli.shared.options import (
    algorithm_option,
    cluster_option,
    file_option,
    hosts_option,
    json_option,
    output_option,
    plan_option,
    profile_option,
    seed_option,
)
from hocket.cli.shared.output import bars, publish, save
from hocket.cli.shared.values import COUNTS, PATIENCE, SIZES, Real
from hocket.planning.ordering import matrix
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.matrix import Matrix
from hocket.planning.ordering.solve import ALGORITHMS, Algorithm, Ordering, Request, solve, solve_sizes
from hocket.planning.ordering.solve import Progress as Told
from hocket.start import hosts as hosts_file
from hocket.tools.ordering import execute, topology
from hocket.tools.ordering.handover import FORMATS
from hocket.tools.ordering.handover.layout import layout_of
from hocket.tools.ordering.inferred import with_trunks
from hocket.tools.simulation.order import solve_program

HOSTS_SHOWN_MAX = 32

Found = TypeVar("Found")


@click.command("order", context_settings={"allow_interspersed_args": True})
@file_option("--matrix", "matrix_path", text="Latency of every pair, CSV, with or without names.")
@file_option("--bandwidth-matrix", "bandwidth_path", text="With --matrix: bit/s of every pair, CSV.")
@click.option(
    "--unit", type=click.Choice(["s", "ms", "us"]), default="s", show_default=True, help="Of --matrix."
)
@cluster_option("Cluster file (TOML) of `hocket probe`, or written by hand.")
@file_option(
    "--topology",
    "topology_path",
    text="AWS instance topology (JSON), nodes of Kubernetes (JSON) or SLURM's topology.conf; with --cluster, notes where it "
    "has hosts of different racks below one switch.",
)
@click.option(
    "--labels",
    type=click.STRING,
    metavar="LABEL,...",
    help="Labels of Kubernetes' nodes, from the top down.  [default: region and zone]",
)
@hosts_option("Hosts file, `NAME [slots=N]` a line, or hosts: the given order, and slots.")
@click.option("--skip-unreachable", is_flag=True, help="Leave out hosts that nobody reaches.")
@algorithm_option(ALGORITHMS, "ring", "Of the collective; `auto`: the one that costs least, with its order.")
@click.option(
    "--sizes",
    "sizes_bytes",
    type=SIZES,
    metavar="SIZE,...",
    help="Bytes of each rank's buffer, such as 4KB,1MB; several: an order for each, and with `auto` an algorithm.  "
    "[default: latency alone]",
)
@click.option(
    "--base", type=click.IntRange(2, 1 << 16), metavar="N", default=4, show_default=True, help="Of bcube."
)
@click.option(
    "--groups",
    type=COUNTS,
    metavar="N,...",
    help="Sizes of two-level's groups, such as 4,4.  [default: found]",
)
@plan_option("With --cluster: for this plan of Hocket; cost is its simulated step.")
@profile_option("With --plan: profile file (JSON), for when gradients are ready.  [default: a neutral one]")
@click.option(
    "--evaluations",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    default=200,
    show_default=True,
    help="With --plan: steps to simulate.",
)
@click.option(
    "--far-first/--near-first",
    default=None,
    help="Rounds begin between ranks far apart, as Hocket's own do, or next to each other, as Gloo's and MPI's do.  "
    "[default: far for bcube, near for others]",
)
@seed_option
@click.option(
    "--restarts",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=4,
    show_default=True,
    help="Runs of the search.",
)
@click.option(
    "--effort",
    type=Real(0, 1e6, min_open=True),
    metavar="FACTOR",
    default=1.0,
    show_default=True,
    help="Of a run.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=PATIENCE,
    metavar="SECONDS",
    help="Stop after this time with the best order so far, which another run may not repeat.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    metavar="FORMAT",
    help=f"Print only what this launcher takes: {', '.join(FORMATS)}.",
)
@output_option("With --format: write it here instead.")
@json_option
@click.option("--exec", "executes", is_flag=True, help="Run a launcher with the order: --exec -- mpirun …")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def command(
    *,
    matrix_path: Path | None,
    bandwidth_path: Path | None,
    unit: str,
    cluster_path: Path | None,
    topology_path: Path | None,
    labels: str | None,
    hosts: Path | None,
    skip_unreachable: bool,
    algorithm: Algorithm,
    sizes_bytes: tuple[int, ...] | None,
    base: int,
    groups: tuple[int, ...] | None,
    plan_path: Path | None,
    profile_path: Path | None,
    evaluations: int,
    far_first: bool | None,
    seed: int,
    restarts: int,
    effort: float,
    time_limit_s: float | None,
    form: str | None,
    output: Path | None,
    as_json: bool,
    executes: bool,
    argv: tuple[str, ...],
) -> None:
    """Order hosts so that a collective between them takes least time, by latency and bandwidth of every pair.

    \b
    Example: hocket order --cluster cluster.toml --algorithm ring --format openmpi-rankfile -o rankfile
    """
    sizes_bytes = sizes_bytes or ()
    _check(
        executes=executes,
        argv=argv,
        form=form,
        output=output,
        as_json=as_json,
        planned=plan_path is not None,
        skip_unreachable=skip_unreachable,
        sizes=len(sizes_bytes),
    )
    given = _given(
        matrix_path=matrix_path,
        bandwidth_path=bandwidth_path,
        unit=unit,
        cluster_path=cluster_path,
        topology_path=topology_path,
        labels=labels,
        hosts=hosts,
        skip=skip_unreachable,
    )
    request = Request(
        algorithm=algorithm,
        size_bytes=sizes_bytes[0] if len(sizes_bytes) == 1 else 0,
        base=base,
        groups=groups or (),
        far_first=far_first,
        seed=seed,
        restarts=restarts,
        effort=effort,
        time_limit_s=time_limit_s,
    )
    if len(sizes_bytes) > 1:
        _sizes_table(given, request, sizes_bytes, as_json=as_json)
        return
    by_program = _by_program(plan_path, profile_path, cluster_path, evaluations, seed)
    found = _watched(given, by_program or (lambda progress: solve(given, request, progress)))
    if form is not None:
        text = FORMATS[form](layout_of(found))
        if output is not None:
            save(output, text)
        else:
            click.echo(text, nl=False)
    if as_json or (form is None and not executes):
        publish(_shown(found, list(given.hosts)), _tree(found), as_json=as_json)
    else:
        for note in found.notes:
            click.echo(f"note: {note}", err=True)
    if executes:
        sys.exit(execute.run(layout_of(found), argv))


def _check(
    *,
    executes: bool,
    argv: tuple[str, ...],
    form: str | None,
    output: Path | None,
    as_json: bool,
    planned: bool,
    skip_unreachable: bool,
    sizes: int,
) -> None:
    """Raise UsageError for options that exclude each other."""
    if executes != bool(argv):
        raise click.UsageError(
            "a command comes behind --exec --" if executes else f"what is `{argv[0]}`? see --exec"
        )
    if output is not None and form is None:
        raise click.UsageError("-o is for what --format says; --json prints everything")
    if as_json and (executes or (form is not None and output is None)):
        raise click.UsageError("--json prints everything: leave out --exec, and write --format to -o FILE")
    if planned and skip_unreachable:
        raise click.UsageError("--skip-unreachable is not for --plan, which needs all ranks")
    if planned and sizes:
        raise click.UsageError("--sizes is not for --plan, whose buckets have their own sizes")
    if sizes > 1 and (executes or form is not None):
        raise click.UsageError("several --sizes are a table of orders: leave out --format and --exec")


def _given(
    *,
    matrix_path: Path | None,
    bandwidth_path: Path | None,
    unit: str,
    cluster_path: Path | None,
    topology_path: Path | None,
    labels: str | None,
    hosts: Path | None,
    skip: bool,
) -> Matrix:
    compared = cluster_path is not None and topology_path is not None
    if sum(path is not None for path in (matrix_path, cluster_path, topology_path)) != 1 + compared:
        raise click.UsageError(
            "one of --matrix, --cluster and --topology says what the network is like; with a cluster, a topology is compared"
        )
    if bandwidth_path is not None and matrix_path is None:
        raise click.UsageError("--bandwidth-matrix is for --matrix; a cluster has its own rates")
    if labels is not None and topology_path is None:
        raise click.UsageError("--labels are those of the nodes in --topology")
    listed = hosts_file.read(hosts) if hosts else None
    names = [host.name for host in listed] if listed else None
    if cluster_path is not None:
        if listed:
            raise click.UsageError("--hosts is for --matrix and --topology; a cluster has its own hosts")
        cluster = files.read(cluster_path, Cluster)
        found = of_cluster(cluster, skip_unreachable=skip)
        if topology_path is not None:
            doubts = topology.doubts(topology_path, cluster, labels.split(",") if labels else None)
            found = replace(found, notes=(*found.notes, *doubts))
        return found
    if topology_path is not None:
        found = topology.read(topology_path, names, labels.split(",") if labels else None)
    elif matrix_path is not None:
        found = matrix.read_csv(
            matrix_path, bandwidth=bandwidth_path, unit=unit, hosts=names, skip_unreachable=skip
        )
        found = with_trunks(found)
    slots = {host.name: host.slots for host in listed or ()}
    return replace(found, slots=tuple(slots.get(host, 1) for host in found.hosts))


def _sizes_table(given: Matrix, request: Request, sizes_bytes: tuple[int, ...], *, as_json: bool) -> None:
    found = _watched(given, lambda progress: solve_sizes(given, request, sizes_bytes, progress))
    table = Table("bytes", "algorithm", "given order", "this order", "hosts")
    for each in found:
        names = " ".join(each.hosts[:HOSTS_SHOWN_MAX])
        title = each.algorithm.replace("_", "-")
        title += f" of {', '.join(map(str, each.groups))}" if each.groups else ""
        table.add_row(f"{each.size_bytes:g}", title, _seconds(each.given_s), _seconds(each.cost_s), names)
    notes = [f"note: {note}" for note in found[0].notes]
    publish((table, *notes), [_tree(each) for each in found], as_json=as_json)


def _by_program(
    plan_path: Path | None, profile_path: Path | None, cluster_path: Path | None, evaluations: int, seed: int
) -> Callable[[Told], Ordering] | None:
    """Search for a plan's order; None when no plan is given."""
    if plan_path is None:
        if profile_path is not None:
            raise click.UsageError("--profile is for --plan")
        return None
    if cluster_path is None:
        raise click.UsageError("--plan needs --cluster: its links are what is simulated")
    plan, cluster = files.read(plan_path, Plan), files.read(cluster_path, Cluster)
    profile = None if profile_path is None else files.read(profile_path, Profile)
    return lambda progress: solve_program(
        plan, cluster, profile=profile, evaluations=evaluations, seed=seed, progress=progress
    )


def _watched(given: Matrix, search: Callable[[Told], Found]) -> Found:
    """Run with a progress bar on standard error, which disappears."""
    with bars(transient=True) as bar:
        task = bar.add_task(f"{len(given.hosts)} hosts", total=None)

        def progress(done: int, total: int, what: str) -> None:
            title = f"{len(given.hosts)} hosts, {what.replace('_', '-')}"
            bar.update(task, completed=done, total=total or None, description=title)

        return search(progress)


def _tree(found: Ordering) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(found)
    tree["gap"] = found.gap if found.bound_s > 0 else None
    return tree


def _shown(found: Ordering, given: list[str]) -> list[Table | str]:
    title = found.algorithm.replace("_", "-")
    if found.groups:
        title += " of " + ", ".join(map(str, found.groups))
    table = Table("", "time", title=f"{title}, {len(found.hosts)} hosts", title_justify="left")
    table.add_row("given order", _seconds(found.given_s))
    table.add_row("this order", _seconds(found.cost_s))
    if found.bound_s > 0:
        table.add_row("no order takes less than", _seconds(found.bound_s))
    shown: list[Table | str] = [table]
    if found.considered:
        others = Table("algorithm", "groups", "time in its best order")
        if found.algorithm == "program":
            others = Table("best order of", "", "step of the program")
        for each in found.considered:
            sizes = f"{len(each.groups)} of {min(each.groups)} to {max(each.groups)}" if each.groups else ""
            others.add_row(each.algorithm.replace("_", "-"), sizes, _seconds(each.cost_s))
        shown.append(others)
    names = " ".join(found.hosts[:HOSTS_SHOWN_MAX])
    more = len(found.hosts) - HOSTS_SHOWN_MAX
    shown.append(names + (f" and {more} more" if more > 0 else ""))
    if list(found.hosts) == given:
        shown.append("The given order stays: no better one was found.")
    elif found.given_s > 0:
        shown.append(f"{found.given_s / max(found.cost_s, 1e-300):.2f} times faster than the given order.")
    if found.proven:
        shown.append("No order is better.")
    else:
        gap = f"within {found.gap * 100:.1f} %" if found.bound_s > 0 else "not bounded"
        shown.append(f"Gap to the bound: {gap}.")
    if not found.complete:
        shown.append("The time limit ended the search.")
    return shown + [f"note: {note}" for note in found.notes]


def _seconds(time_s: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if time_s * scale >= 1:
            return f"{time_s * scale:.3f} {unit}"
    return f"{time_s * 1e6:.2f} µs"

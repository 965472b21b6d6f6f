"""`hocket order`: find the order of hosts in which collectives cost least, and hand it to a launcher."""

from __future__ import annotations

import math
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
from hocket.cli.shared.output import bars, console
from hocket.errors import UsageError
from hocket.launch import hosts as hosts_file
from hocket.measure.inferred import with_trunks
from hocket.ordering import execute, matrix, topology
from hocket.ordering.cluster import of_cluster
from hocket.ordering.handover import FORMATS
from hocket.ordering.handover.layout import layout_of
from hocket.ordering.matrix import Matrix
from hocket.ordering.solve import ALGORITHMS, Algorithm, Ordering, Request, solve, solve_sizes
from hocket.ordering.solve import Progress as Told
from hocket.simulation.order import solve_program

PATH = click.Path(path_type=Path, dir_okay=False)
HOSTS_SHOWN_MAX = 32

Found = TypeVar("Found")


def _word(_context: click.Context, _option: click.Parameter, text: str) -> str:
    word = text.replace("-", "_")
    if word not in ALGORITHMS:
        known = ", ".join(each.replace("_", "-") for each in ALGORITHMS)
        raise click.BadParameter(f"`{text}` is not one of {known}")
    return word


def _groups(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 1 << 31 for part in parts):
        raise click.BadParameter(f"`{text}` is not a list of sizes such as 4,4")
    return tuple(int(part) for part in parts)


def _sizes(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        sizes = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"`{text}` is not a list of bytes such as 4e3,1e6") from None
    if not all(0 < size < math.inf for size in sizes):
        raise click.BadParameter(f"`{text}`: a buffer has more than 0 bytes")
    return sizes


@click.command("order", context_settings={"allow_interspersed_args": True})
@click.option("--matrix", "matrix_path", type=PATH, help="Latency of every pair, CSV, with or without names.")
@click.option("--bandwidth", "bandwidth_path", type=PATH, help="With --matrix: bit/s of every pair, CSV.")
@click.option(
    "--unit", type=click.Choice(["s", "ms", "us"]), default="s", show_default=True, help="Of --matrix."
)
@click.option(
    "--cluster", "cluster_path", type=PATH, help="Cluster that `hocket probe` measured, or written by hand."
)
@click.option(
    "--topology", "topology_path", type=PATH, help="AWS instance topology (JSON) or SLURM's topology.conf."
)
@click.option("--hosts", "hosts_path", type=PATH, help="Hosts file: the given order, and slots.")
@click.option("--skip-unreachable", is_flag=True, help="Leave out hosts that nobody reaches.")
@click.option(
    "--algorithm",
    default="ring",
    show_default=True,
    callback=_word,
    help="Of the collective; `auto`: the one that costs least, with its order.",
)
@click.option(
    "--bytes", "size_bytes", type=float, default=0.0, help="Of each rank's buffer; default: latency alone."
)
@click.option(
    "--sizes",
    "sizes_bytes",
    callback=_sizes,
    help="Several buffers, such as 4e3,1e6,1e8: an order for each, and with `auto` an algorithm.",
)
@click.option("--base", type=click.IntRange(2, 1 << 16), default=4, show_default=True, help="Of bcube.")
@click.option("--groups", callback=_groups, help="Sizes of two-level's groups, such as 4,4; default: found.")
@click.option(
    "--program",
    "plan_path",
    type=PATH,
    metavar="PLAN",
    help="With --cluster: for this plan of Hocket; cost is its simulated step.",
)
@click.option("--profile", "profile_path", type=PATH, help="With --program: when gradients are ready.")
@click.option(
    "--evaluations",
    type=click.IntRange(1, 1_000_000),
    default=200,
    show_default=True,
    help="With --program: steps to simulate.",
)
@click.option(
    "--far-first/--near-first",
    default=None,
    help="Rounds begin between ranks far apart, as Hocket's own do, or next to each other, as Gloo's and MPI's do; default: "
    "far for bcube, near for others.",
)
@click.option(
    "--seed", type=click.IntRange(0, (1 << 64) - 1), default=0, show_default=True, help="Of all chance."
)
@click.option(
    "--restarts", type=click.IntRange(1, 10_000), default=4, show_default=True, help="Runs of the search."
)
@click.option(
    "--effort", type=click.FloatRange(0, 1e6, min_open=True), default=1.0, show_default=True, help="Of a run."
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(0, 1e9),
    help="Stop after this many seconds with the best so far, which another run may not repeat.",
)
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), help="Print what this launcher takes, only."
)
@click.option("-o", "--output", type=PATH, help="With --format: write it here instead.")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path, allow_dash=True), help="Write all here; -: print."
)
@click.option("--exec", "executes", is_flag=True, help="Run a launcher with the order: --exec -- mpirun …")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    matrix_path: Path | None,
    bandwidth_path: Path | None,
    unit: str,
    cluster_path: Path | None,
    topology_path: Path | None,
    hosts_path: Path | None,
    skip_unreachable: bool,
    algorithm: Algorithm,
    size_bytes: float,
    sizes_bytes: tuple[float, ...],
    base: int,
    groups: tuple[int, ...],
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
    json_path: Path | None,
    executes: bool,
    argv: tuple[str, ...],
) -> None:
    """Order hosts so that a collective between them takes least time, by latency and bandwidth of every pair.

    Example: hocket order --cluster cluster.toml --algorithm ring --format openmpi-rankfile -o rankfile
    """
    if executes != bool(argv):
        raise click.UsageError(
            "a command comes behind --exec --" if executes else f"what is `{argv[0]}`? see --exec"
        )
    if output is not None and form is None:
        raise click.UsageError("-o is for what --format says; --json FILE writes all")
    if plan_path is not None and skip_unreachable:
        raise click.UsageError("--skip-unreachable is not for --program, whose plan needs all ranks")
    given = _given(
        matrix_path=matrix_path,
        bandwidth_path=bandwidth_path,
        unit=unit,
        cluster_path=cluster_path,
        topology_path=topology_path,
        hosts_path=hosts_path,
        skip=skip_unreachable,
    )
    request = Request(
        algorithm=algorithm,
        size_bytes=size_bytes,
        base=base,
        groups=groups,
        far_first=far_first,
        seed=seed,
        restarts=restarts,
        effort=effort,
        time_limit_s=time_limit_s,
    )
    if sizes_bytes:
        if executes or form is not None or plan_path is not None or size_bytes:
            raise click.UsageError("--sizes is a table of orders: it goes with --json alone")
        _sizes_table(given, request, sizes_bytes, json_path)
        return
    by_program = _by_program(plan_path, profile_path, cluster_path, evaluations, seed)
    found = _watched(given, by_program or (lambda progress: solve(given, request, progress)))
    _hand_over(found, form, output, json_path)
    if form is None and not executes and json_path != Path("-"):
        _print(found, list(given.hosts))
    else:
        for note in found.notes:
            click.echo(f"note: {note}", err=True)
    if executes:
        sys.exit(execute.run(layout_of(found), argv))


def _hand_over(found: Ordering, form: str | None, output: Path | None, json_path: Path | None) -> None:
    """The files, or on standard output what was asked for there."""
    if json_path == Path("-"):
        click.echo(_json(found), nl=False)
    elif json_path is not None:
        _write(json_path, _json(found))
    if form is not None:
        text = FORMATS[form](layout_of(found))
        if output is not None:
            _write(output, text)
        else:
            click.echo(text, nl=False)


def _given(
    *,
    matrix_path: Path | None,
    bandwidth_path: Path | None,
    unit: str,
    cluster_path: Path | None,
    topology_path: Path | None,
    hosts_path: Path | None,
    skip: bool,
) -> Matrix:
    if sum(path is not None for path in (matrix_path, cluster_path, topology_path)) != 1:
        raise click.UsageError("one of --matrix, --cluster and --topology says what the network is like")
    if bandwidth_path is not None and matrix_path is None:
        raise click.UsageError("--bandwidth is for --matrix; a cluster has its own")
    listed = hosts_file.read(hosts_path) if hosts_path else None
    names = [host.name for host in listed] if listed else None
    if cluster_path is not None:
        if listed:
            raise click.UsageError("--hosts is for --matrix and --topology; a cluster has its own hosts")
        return of_cluster(files.read(cluster_path, Cluster), skip_unreachable=skip)
    if topology_path is not None:
        found = topology.read(topology_path, names)
    elif matrix_path is not None:
        found = matrix.read_csv(
            matrix_path, bandwidth=bandwidth_path, unit=unit, hosts=names, skip_unreachable=skip
        )
        found = with_trunks(found)
    slots = {host.name: host.slots for host in listed or ()}
    return replace(found, slots=tuple(slots.get(host, 1) for host in found.hosts))


def _sizes_table(
    given: Matrix, request: Request, sizes_bytes: tuple[float, ...], json_path: Path | None
) -> None:
    """Prints an order by size, or writes all as a list."""
    found = _watched(given, lambda progress: solve_sizes(given, request, sizes_bytes, progress))
    if json_path is not None:
        encoded = msgspec.json.format(msgspec.json.encode([_tree(each) for each in found]), indent=2).decode()
        if json_path == Path("-"):
            click.echo(encoded)
            return
        _write(json_path, encoded + "\n")
    table = Table("bytes", "algorithm", "given order", "this order", "hosts")
    for each in found:
        names = " ".join(each.hosts[:HOSTS_SHOWN_MAX])
        title = each.algorithm.replace("_", "-")
        title += f" of {', '.join(map(str, each.groups))}" if each.groups else ""
        table.add_row(f"{each.size_bytes:g}", title, _seconds(each.given_s), _seconds(each.cost_s), names)
    console().print(table)
    for note in found[0].notes:
        console().print(f"note: {note}", highlight=False, soft_wrap=True)


def _by_program(
    plan_path: Path | None, profile_path: Path | None, cluster_path: Path | None, evaluations: int, seed: int
) -> Callable[[Told], Ordering] | None:
    """The search for a plan's order; None when no plan is given."""
    if plan_path is None:
        if profile_path is not None:
            raise click.UsageError("--profile is for --program")
        return None
    if cluster_path is None:
        raise click.UsageError("--program needs --cluster: its links are what is simulated")
    plan, cluster = files.read(plan_path, Plan), files.read(cluster_path, Cluster)
    profile = None if profile_path is None else files.read(profile_path, Profile)
    return lambda progress: solve_program(
        plan, cluster, profile=profile, evaluations=evaluations, seed=seed, progress=progress
    )


def _watched(given: Matrix, search: Callable[[Told], Found]) -> Found:
    """With a progress bar on standard error, which goes away."""
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


def _json(found: Ordering) -> str:
    tree = _tree(found)
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode() + "\n"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _print(found: Ordering, given: list[str]) -> None:
    shown = console()
    title = found.algorithm.replace("_", "-")
    if found.groups:
        title += " of " + ", ".join(map(str, found.groups))
    table = Table("", "time", title=f"{title}, {len(found.hosts)} hosts", title_justify="left")
    table.add_row("given order", _seconds(found.given_s))
    table.add_row("this order", _seconds(found.cost_s))
    if found.bound_s > 0:
        table.add_row("no order takes less than", _seconds(found.bound_s))
    shown.print(table)
    if found.considered:
        others = Table("algorithm", "groups", "time in its best order")
        if found.algorithm == "program":
            others = Table("best order of", "", "step of the program")
        for each in found.considered:
            sizes = f"{len(each.groups)} of {min(each.groups)} to {max(each.groups)}" if each.groups else ""
            others.add_row(each.algorithm.replace("_", "-"), sizes, _seconds(each.cost_s))
        shown.print(others)
    names = " ".join(found.hosts[:HOSTS_SHOWN_MAX])
    more = len(found.hosts) - HOSTS_SHOWN_MAX
    shown.print(names + (f" and {more} more" if more > 0 else ""), highlight=False, soft_wrap=True)
    if list(found.hosts) == given:
        shown.print("The given order stays: no better one was found.")
    elif found.given_s > 0:
        shown.print(
            f"{found.given_s / max(found.cost_s, 1e-300):.2f} times faster than the given order.",
            highlight=False,
        )
    if found.proven:
        shown.print("No order is better.")
    else:
        said = f"within {found.gap * 100:.1f} %" if found.bound_s > 0 else "not bounded"
        shown.print(f"Gap to the bound: {said}.", highlight=False)
    if not found.complete:
        shown.print("The time limit ended the search.")
    for note in found.notes:
        shown.print(f"note: {note}", highlight=False, soft_wrap=True)


def _seconds(time_s: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if time_s * scale >= 1:
            return f"{time_s * scale:.3f} {unit}"
    return f"{time_s * 1e6:.2f} µs"

"""`hocket bench`: compare with other libraries, in turns within one run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from hocket import _native
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.errors import Error

if TYPE_CHECKING:
    from hocket.bench.simulate import Speed

DEFAULT_SIZES_BYTES = (4_000, 64_000, 1_000_000, 25_000_000)
DEFAULT_FACTOR = 4.0
FILE_COLUMNS = 120
MEGA = 1e6
GIGA = 1e9


UNITS = {"": 1, "B": 1, **{f"{k}{b}": 1000**n for n, k in enumerate("KMG", 1) for b in ("", "B")}}
UNITS |= {f"{k}IB": 1024**n for n, k in enumerate("KMG", 1)}
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Z]*)\s*", re.ASCII)


def _size(text: str) -> int:
    found = SIZE.fullmatch(text.upper())
    size_bytes = int(float(found[1]) * UNITS[found[2]]) if found and found[2] in UNITS else 0
    if size_bytes == 0:
        raise click.BadParameter(f"`{text}` is not a size such as 4KB, 1.5MiB or 25MB")
    return size_bytes


def _sizes(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    return tuple(_size(each) for each in text.split(",")) if text is not None else ()


def _names(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _place(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Known before minutes are spent on what is to be written there."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}")
    return path


def _cache_line_ns() -> float | None:
    """How far the cores are from each other just now, which is said before any result; None with one core."""
    near = _native.cache_line_ns()
    if near is not None:
        click.echo(f"a cache line takes {near:.0f} ns from core to core")
    return near


def _write(path: Path | None, result: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")


json_option = click.option(
    "--json",
    "out",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_place,
    help="Also write the numbers here.",
)


@click.group("bench")
def command() -> None:
    """Compare with other libraries; contenders take turns, so that only ratios matter.

    Example: hocket bench all_reduce --against gloo,mpi
    """


def _collective(what: str, doc: str) -> None:
    """One verb; all have the same options."""

    @command.command(what, help=doc)
    @click.option(
        "-n", "--world", type=click.IntRange(2), default=4, show_default=True, help="Ranks on this machine."
    )
    @click.option("--sizes", callback=_sizes, help="Bytes of a rank's buffer.  [default: 4KB,64KB,1MB,25MB]")
    @click.option("--from", "first", callback=_sizes, help="Instead of --sizes: the smallest,")
    @click.option("--to", "last", callback=_sizes, help="the largest,")
    @click.option(
        "--factor", type=click.FloatRange(1, min_open=True), help="from one to the next.  [default: 4]"
    )
    @click.option(
        "--dtype",
        type=click.Choice(["f32", "f64", "i32", "i64"]),
        default="f32",
        show_default=True,
        help="Elements.",
    )
    @click.option(
        "--rounds", type=click.IntRange(1), default=20, show_default=True, help="Turns of each contender."
    )
    @click.option("--ours", default="engine", show_default=True, callback=_names, help="Hocket's own.")
    @click.option(
        "--against", default="", callback=_names, help="Other libraries in the same run: gloo, mpi, nccl."
    )
    @click.option(
        "--algorithm",
        type=click.Choice(["auto", "in_place", "direct", "ring", "halving_doubling"]),
        default="auto",
        show_default=True,
        help="The engine's.",
    )
    @click.option(
        "--chunk-bytes",
        type=click.IntRange(64),
        help="The engine's pipelining unit; a plan's by default.",
    )
    @click.option(
        "--tcp", is_flag=True, help="Loopback TCP between the ranks, no shared memory, for all contenders."
    )
    @click.option(
        "--cluster",
        "cluster_path",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A rank on each slot of this cluster, emulated by network namespaces, instead of --world; needs root.",
    )
    @click.option(
        "--plot",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=_place,
        help="Also draw time and bandwidth here, as SVG.",
    )
    @json_option
    def verb(
        *,
        world: int,
        sizes: tuple[int, ...],
        first: tuple[int, ...],
        last: tuple[int, ...],
        factor: float | None,
        dtype: str,
        rounds: int,
        ours: tuple[str, ...],
        against: tuple[str, ...],
        algorithm: str,
        chunk_bytes: int | None,
        tcp: bool,
        cluster_path: Path | None,
        plot: Path | None,
        out: Path | None,
    ) -> None:
        from hocket.bench.collectives import plot as drawing  # noqa: PLC0415  # loads what only this verb needs
        from hocket.bench.collectives import table  # noqa: PLC0415  # as above
        from hocket.bench.collectives.request import Request  # noqa: PLC0415  # as above
        from hocket.bench.collectives.run import measure  # noqa: PLC0415  # as above

        if tcp and cluster_path is not None:
            raise click.UsageError("--tcp is for ranks of this machine; hosts of a --cluster use TCP anyway")
        request = Request(
            what=what,
            contenders=ours + against,
            sizes_bytes=_chosen(sizes, first, last, factor),
            dtype=dtype,
            rounds=rounds,
            algorithm=algorithm,
            chunk_bytes=chunk_bytes,
            tcp=tcp,
            cluster=None if cluster_path is None else files.read(cluster_path, Cluster),
        )
        result = measure(request, world=world)
        click.echo(table.head(result))
        # A file has room for every column; a terminal says how much it has.
        Console(width=None if sys.stdout.isatty() else FILE_COLUMNS).print(table.table(result))
        if out is not None:
            out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
        if plot is not None:
            plot.write_text(drawing.svg(result))
        if result.wrong:
            raise Error(f"{result.wrong:,} elements are wrong\nhint: the column `wrong` says whose")


def _chosen(
    sizes: tuple[int, ...], first: tuple[int, ...], last: tuple[int, ...], factor: float | None
) -> tuple[int, ...]:
    """Those of --sizes, or from --from to --to."""
    if not (first or last or factor):
        return tuple(dict.fromkeys(sizes)) or DEFAULT_SIZES_BYTES
    if sizes or len(first) != 1 or len(last) != 1:
        raise click.UsageError("sizes are given by --sizes, or by --from, --to and perhaps --factor")
    if first[0] > last[0]:
        raise click.UsageError(f"--from {first[0]:,} bytes is more than --to {last[0]:,} bytes")
    series, size = [], float(first[0])
    while size < last[0]:
        series.append(int(size))
        size *= factor or DEFAULT_FACTOR
    return (*series, last[0])


for _what, _first_line in {
    "all_reduce": "Everyone's sum on all ranks",
    "reduce_scatter": "Everyone's sum, a part on each rank",
    "all_gather": "Everyone's part on all ranks",
    "broadcast": "Rank 0's buffer on all ranks",
    "reduce": "Everyone's sum on rank 0",
    "all_to_all": "A part of everyone's buffer on each rank",
}.items():
    _collective(
        _what,
        f"""{_first_line}: Hocket and other libraries in turns, results checked.

        Time is the slowest rank's per call, median over rounds. Bandwidths are those of nccl-tests: size over time, and what a link
        carries of it. Small ones are called up to 100 times in a row. `wrong` counts elements that are not as they must be.

        Example: hocket bench {_what} --world 4 --sizes 4KB,25MB --against gloo,mpi
        """,
    )


@command.command("hook")
@json_option
def hook(*, out: Path | None) -> None:
    """What the readiness hook adds to backward, per gradient."""
    from hocket.bench.hook import measure  # noqa: PLC0415  # loads torch

    cost = measure()
    table = Table("per gradient", "µs")
    table.add_row("backward without a hook", f"{cost.backward_s * 1e6:.2f}")
    table.add_row("an empty Python hook adds", f"{cost.empty_python_hook_s * 1e6:.2f}")
    table.add_row("the readiness hook adds", f"{cost.readiness_hook_s * 1e6:.2f}")
    Console().print(table)
    _write(out, {name: getattr(cost, name) for name in cost.__struct_fields__})


@command.command("trace")
@click.option(
    "-n", "--world", type=click.IntRange(2), default=4, show_default=True, help="Ranks on this machine."
)
@click.option(
    "--rounds", type=click.IntRange(1), default=60, show_default=True, help="Steps with and without."
)
@json_option
def trace(*, world: int, rounds: int, out: Path | None) -> None:
    """What writing a trace adds to a training step."""
    from hocket.bench.trace import measure  # noqa: PLC0415  # loads what only this verb needs

    result = measure(world=world, rounds=rounds)
    table = Table("step", "median", "p10 to p90")
    for name in ("off", "on"):
        each = result[name]
        spread = f"{each['p10_s'] * 1e3:.2f} to {each['p90_s'] * 1e3:.2f}"
        table.add_row(f"trace {name}", f"{each['median_s'] * 1e3:.2f} ms", spread)
    table.add_row("on / off", f"{result['ratio']:.4f}")
    Console().print(table)
    _write(out, result)


@command.command("verify")
@json_option
def verify(*, out: Path | None) -> None:
    """How long 64 ranks and 200 buckets take to compile and verify."""
    from hocket.bench.verify import measure  # noqa: PLC0415  # loads what only this verb needs

    cost = measure()
    click.echo(
        f"{cost.world} ranks, {cost.buckets} buckets of {cost.elements:,} elements: {cost.total_s:.2f} s"
    )
    _write(out, {name: getattr(cost, name) for name in cost.__struct_fields__})


@command.command("policies")
@click.option(
    "--row", "rows", multiple=True, help="One row alone; may be given again. `--row list` lists them."
)
@json_option
def policies(*, rows: tuple[str, ...], out: Path | None) -> None:
    """The ready-made policies on emulated clusters, each against what it is meant to beat. About ten minutes; needs root.

    Example: hocket bench policies --row two_level
    """
    from hocket.bench.policies import ROWS, measure  # noqa: PLC0415  # loads what only this verb needs

    if "list" in rows:
        click.echo("\n".join(ROWS))
        return
    unknown = next((row for row in rows if row not in ROWS), None)
    if unknown is not None:
        raise click.BadParameter(f"there is no row `{unknown}`: {', '.join(ROWS)}")
    near = _cache_line_ns()
    table = Table("row", "what", "measured", "bar", "holds")
    measured = []
    for row in measure(rows or None):
        click.echo(f"{row.name}: {row.value:.4g}{row.unit}", err=True)
        measured.append({name: getattr(row, name) for name in row.__struct_fields__})
        bar = "" if row.bar is None else f"{row.bar:g}{row.unit}"
        table.add_row(row.name, row.what, f"{row.value:.4g}{row.unit}", bar, "yes" if row.holds else "no")
    Console().print(table)
    _write(out, {"cache_line_ns": near, "rows": measured})


@command.command("order-search")
@click.option(
    "--row", "rows", multiple=True, help="One row alone; may be given again. `--row list` lists them."
)
@json_option
def order_search(*, rows: tuple[str, ...], out: Path | None) -> None:
    """How good the orders of `hocket order` are, and how long they take to find. About ten minutes.

    Example: hocket bench order-search --row small --json order.json
    """
    from hocket.bench.order_search.measure import ROWS, measure  # noqa: PLC0415  # loads what only this verb needs

    if "list" in rows:
        click.echo("\n".join(ROWS))
        return
    unknown = next((row for row in rows if row not in ROWS), None)
    if unknown is not None:
        raise click.BadParameter(f"there is no row `{unknown}`: {', '.join(ROWS)}")
    table = Table("row", "what", "read", "bar", "holds", "search")
    measured = []
    for row in measure(rows):
        click.echo(f"{row.what}: {row.value:.4f}", err=True)
        measured.append({name: getattr(row, name) for name in row.__struct_fields__} | {"holds": row.holds})
        bar = "" if row.bar is None else f"{row.bar:g}"
        holds = "yes" if row.holds else "no"
        table.add_row(row.name, row.what, f"{row.value:.4f}", bar, holds, f"{row.seconds:.2f} s")
    Console().print(table)
    _write(out, {"rows": measured})


@command.command("kernels")
@click.option(
    "--rounds", type=click.IntRange(1), default=15, show_default=True, help="Turns of each contender."
)
@json_option
def kernels(*, rounds: int, out: Path | None) -> None:
    """Bytes per second of each kernel on one core, as a share of memcpy over as many bytes, and of the memory's bandwidth.

    Example: hocket bench kernels --json kernels.json
    """
    from hocket.bench.kernels import measure  # noqa: PLC0415  # loads what only this verb needs

    near = _cache_line_ns()
    table = Table("kernel", "footprint", "moves", "memcpy beside it", "of memcpy", "of bandwidth")
    measured = []
    for rate in measure(rounds=rounds):
        click.echo(f"{rate.title}, {rate.footprint_bytes >> 10:,} KiB: {rate.of_bandwidth:.2f}", err=True)
        measured.append({name: getattr(rate, name) for name in rate.__struct_fields__})
        table.add_row(
            rate.title,
            f"{rate.footprint_bytes >> 10:,} KiB",
            f"{rate.byte_per_s / GIGA:.1f} GB/s",
            f"{rate.memcpy_byte_per_s / GIGA:.1f} GB/s",
            f"{rate.of_memcpy:.2f}",
            f"{rate.of_bandwidth:.2f}",
        )
    Console().print(table)
    _write(out, {"cache_line_ns": near, "rows": measured})


@command.command("orders")
@click.option(
    "--row", "rows", multiple=True, help="One row alone; may be given again. `--row list` lists them."
)
@json_option
def orders(*, rows: tuple[str, ...], out: Path | None) -> None:
    """What the order of ranks is worth to Gloo, Open MPI, DDP and LightGBM as they are, and how well its cost is predicted.

    On emulated clusters of eight hosts whose links have latency: 2 racks of 4, and 4 racks of 2. About fifteen minutes; needs root.

    Example: hocket bench orders --row gloo-2
    """
    from hocket.bench.orders.rows import ROWS, Compared, check, measure  # noqa: PLC0415  # loads what only this verb needs

    if "list" in rows:
        click.echo("\n".join(ROWS))
        return
    check(rows)
    table = Table("row", "what", "measured", "bar", "holds")
    measured = []
    for row in measure(rows or ROWS):
        click.echo(f"{row.name}: {row.value:.3g}", err=True)
        measured.append(msgspec.to_builtins(row))
        table.add_row(
            row.name, row.what, f"{row.value:.3g}", f"{row.bar:g}", "yes" if row.value >= row.bar else "no"
        )
        if isinstance(row, Compared):
            for order, time_s in row.times_s.items():
                shown = ",".join(map(str, row.orders[order]))
                table.add_row("", f"  {order}: {shown}", f"{time_s * 1e3:.1f} ms", "", "")
    Console().print(table)
    _write(out, {"rows": measured})


@command.command("simulate")
@click.option("--large", is_flag=True, help="Also a step of 10,240 ranks, which takes most of a minute.")
@json_option
def simulate(*, large: bool, out: Path | None) -> None:
    """Messages per second of the flow engine on one core, beside ASTRA-sim's figures for the same rings.

    Example: hocket bench simulate --json simulate.json
    """
    from hocket.bench import simulate as bench  # noqa: PLC0415  # loads what only this verb needs

    table = Table("run", "took", "messages", "messages/s", "virtual time", "ASTRA-sim says")
    measured = []
    for run in bench.RUNS.values():
        speed = run()
        click.echo(f"{speed.name}: {speed.took_s:.3f} s", err=True)
        measured.append(bench.as_json(speed))
        table.add_row(*_speed_row(speed))
    if large:
        speed, memory_gib = bench.large()
        measured.append({**bench.as_json(speed), "memory_gib_max": memory_gib})
        table.add_row(*_speed_row(speed))
        click.echo(f"largest memory: {memory_gib:.2f} GiB", err=True)
    Console(width=None if sys.stdout.isatty() else FILE_COLUMNS).print(table)
    _write(out, {"runs": measured})


def _speed_row(speed: Speed) -> tuple[str, ...]:
    told = (
        ""
        if speed.told_s is None
        else f"{speed.told_s * 1e9:,.0f} ns ({speed.virtual_s / speed.told_s - 1:+.2%})"
    )
    return (
        speed.name,
        f"{speed.took_s:.3f} s",
        f"{speed.messages:,}",
        f"{speed.messages_per_s / MEGA:.2f} M",
        f"{speed.virtual_s * 1e9:,.0f} ns",
        told,
    )


@command.command("predict")
@click.option(
    "--cluster",
    "names",
    multiple=True,
    help="One cluster alone; may be given again. `--cluster list` lists them.",
)
@json_option
def predict(*, names: tuple[str, ...], out: Path | None) -> None:
    """Predicted step times against measured ones on emulated clusters. About two minutes; needs root.

    Example: hocket bench predict --cluster "4 hosts, 1 Gbit/s"
    """
    from hocket.bench.predict import CLUSTERS, agreement, measure  # noqa: PLC0415  # loads what only this verb needs

    if "list" in names:
        click.echo("\n".join(CLUSTERS))
        return
    unknown = next((name for name in names if name not in CLUSTERS), None)
    if unknown is not None:
        raise click.BadParameter(f"there is no cluster `{unknown}`: {'; '.join(CLUSTERS)}")
    rows = []
    for name in names or CLUSTERS:
        click.echo(f"measuring {name}", err=True)
        rows += measure([name])
    found = agreement(rows)
    table = Table("cluster", "plan", "measured", "flow", "error", "closed form")
    for row in rows:
        table.add_row(
            row.cluster,
            row.plan,
            f"{row.measured_s * 1e3:.1f} ms",
            f"{row.flow_s * 1e3:.1f} ms",
            f"{row.error:+.1%}",
            f"{row.closed_form_s / row.measured_s - 1:+.1%}",
        )
    Console(width=None if sys.stdout.isatty() else FILE_COLUMNS).print(table)
    click.echo(
        f"{len(rows)} configurations: median error {found.median_error:.1%}, worst {found.worst_error:.1%}, "
        f"Spearman {found.spearman:.3f}, regret {found.regret:.1%}"
    )
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")

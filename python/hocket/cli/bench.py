"""`hocket bench`: compare with other libraries, in turns within one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

MEGA = 1e6
GIGA = 1e9


def _sizes(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    units = {"K": 1000, "M": 1_000_000}
    try:
        return tuple(
            int(float(each.rstrip("KM")) * units.get(each[-1:], 1)) for each in text.upper().split(",")
        )
    except ValueError:
        raise click.BadParameter(f"`{text}` is not a list of sizes such as 4K,25M") from None


def _write(path: Path | None, result: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")


json_option = click.option(
    "--json", "out", type=click.Path(path_type=Path), help="Also write the numbers here."
)


@click.group("bench")
def command() -> None:
    """Compare with other libraries; contenders take turns, so that only ratios matter.

    Example: hocket bench all_reduce --against gloo
    """


@command.command("all_reduce")
@click.option(
    "-n", "--world", type=click.IntRange(2), default=4, show_default=True, help="Ranks on this machine."
)
@click.option(
    "--sizes", default="4K,64K,1M,25M", show_default=True, callback=_sizes, help="Bytes of the bucket."
)
@click.option(
    "--rounds", type=click.IntRange(1), default=20, show_default=True, help="Turns of each contender."
)
@click.option("--against", type=click.Choice(["gloo"]), help="Another library, in the same run.")
@click.option(
    "--algorithm", type=click.Choice(["direct", "ring"]), default="direct", show_default=True, help="Ours."
)
@click.option(
    "--chunk-bytes", type=click.IntRange(64), default=524_288, show_default=True, help="Pipelining unit."
)
@click.option("--tcp", is_flag=True, help="Loopback TCP between the ranks, no shared memory.")
@json_option
def all_reduce(
    *,
    world: int,
    sizes: tuple[int, ...],
    rounds: int,
    against: str | None,
    algorithm: str,
    chunk_bytes: int,
    tcp: bool,
    out: Path | None,
) -> None:
    """All-reduce of f32 buckets in registered memory, results checked at every size.

    Bus bandwidth is 2(n-1)/n of the size over the time of the slowest rank, median over rounds.
    """
    from hocket.bench.all_reduce import measure  # noqa: PLC0415  # loads what only this verb needs

    result = measure(
        world=world,
        sizes_bytes=sizes,
        rounds=rounds,
        against=against,
        algorithm=algorithm,
        chunk_bytes=chunk_bytes,
        tcp=tcp,
    )
    console = Console()
    near = result["cache_line_ns"]
    console.print(
        f"{world} ranks; a cache line takes {near:.0f} ns from core to core" if near else f"{world} ranks"
    )
    table = Table("bytes", "contender", "time", "p10 to p90", "algorithm bandwidth", "bus bandwidth", "wrong")
    for row in result["rows"]:
        for name in ("hocket", against):
            if name is None:
                continue
            each = row[name]
            table.add_row(
                f"{row['size_bytes']:,}",
                name,
                f"{each['median_s'] * 1e3:.3f} ms",
                f"{each['p10_s'] * 1e3:.3f} to {each['p90_s'] * 1e3:.3f}",
                f"{each['algorithm_byte_per_s'] / MEGA:,.0f} MB/s",
                f"{each['bus_byte_per_s'] / MEGA:,.0f} MB/s",
                str(row["wrong"]) if name == "hocket" else "",
            )
        if against is not None:
            ratio = row["hocket"]["bus_byte_per_s"] / row[against]["bus_byte_per_s"]
            table.add_row("", f"ratio to {against}", f"{ratio:.2f} times")
    console.print(table)
    _write(out, result)


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
    from hocket.bench.policies import ROWS, cache_line_ns, measure  # noqa: PLC0415  # loads what only this verb needs

    if "list" in rows:
        click.echo("\n".join(ROWS))
        return
    unknown = next((row for row in rows if row not in ROWS), None)
    if unknown is not None:
        raise click.BadParameter(f"there is no row `{unknown}`: {', '.join(ROWS)}")
    near = cache_line_ns()
    if near is not None:
        click.echo(f"a cache line takes {near:.0f} ns from core to core")
    table = Table("row", "what", "measured", "bar", "holds")
    measured = []
    for row in measure(rows or None):
        click.echo(f"{row.name}: {row.value:.4g}{row.unit}", err=True)
        measured.append({name: getattr(row, name) for name in row.__struct_fields__})
        bar = "" if row.bar is None else f"{row.bar:g}{row.unit}"
        table.add_row(row.name, row.what, f"{row.value:.4g}{row.unit}", bar, "yes" if row.holds else "no")
    Console().print(table)
    _write(out, {"cache_line_ns": near, "rows": measured})


@command.command("kernels")
@click.option(
    "--rounds", type=click.IntRange(1), default=15, show_default=True, help="Turns of each contender."
)
@json_option
def kernels(*, rounds: int, out: Path | None) -> None:
    """Bytes per second of each kernel on one core, as a share of memcpy over as many bytes, and of the memory's bandwidth.

    Example: hocket bench kernels --json kernels.json
    """
    from hocket.bench.kernels import cache_line_ns, measure  # noqa: PLC0415  # loads what only this verb needs

    near = cache_line_ns()
    if near is not None:
        click.echo(f"a cache line takes {near:.0f} ns from core to core")
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

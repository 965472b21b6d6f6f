"""Benchmarks that are a list of promises, each a row with what was read and its bar: policies, rank orders."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from hocket.cli.benches.options import cache_line_ns, listed, numbers_options
from hocket.cli.shared.options import row_option
from hocket.cli.shared.output import publish


@click.command("policies")
@row_option
@numbers_options
def policies(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """The ready-made policies on emulated clusters, each against what it is meant to beat. About ten minutes; needs root.

    Example: hocket bench policies --row two_level
    """
    from hocket.bench.policies import ROWS, measure  # noqa: PLC0415  # loads what only this verb needs

    if listed(rows, ROWS):
        return
    near = cache_line_ns()
    table = Table("row", "what", "measured", "bar", "holds")
    measured = []
    for row in measure(rows or None):
        click.echo(f"{row.name}: {row.value:.4g}{row.unit}", err=True)
        measured.append({name: getattr(row, name) for name in row.__struct_fields__})
        bar = "" if row.bar is None else f"{row.bar:g}{row.unit}"
        table.add_row(row.name, row.what, f"{row.value:.4g}{row.unit}", bar, "yes" if row.holds else "no")
    publish((table,), {"cache_line_ns": near, "rows": measured}, as_json=as_json, output=output)


@click.command("order-search")
@row_option
@numbers_options
def order_search(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """How good the orders of `hocket order` are, and how long they take to find. About ten minutes.

    Example: hocket bench order-search --row small -o order.json
    """
    from hocket.bench.order_search.measure import ROWS, measure  # noqa: PLC0415  # loads what only this verb needs

    if listed(rows, ROWS):
        return
    table = Table("row", "what", "read", "bar", "holds", "search")
    measured = []
    for row in measure(rows):
        click.echo(f"{row.what}: {row.value:.4f}", err=True)
        measured.append({name: getattr(row, name) for name in row.__struct_fields__} | {"holds": row.holds})
        bar = "" if row.bar is None else f"{row.bar:g}"
        holds = "yes" if row.holds else "no"
        table.add_row(row.name, row.what, f"{row.value:.4f}", bar, holds, f"{row.seconds:.2f} s")
    publish((table,), {"rows": measured}, as_json=as_json, output=output)


@click.command("orders")
@row_option
@numbers_options
def orders(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """What the order of ranks is worth to Gloo, Open MPI, DDP and LightGBM as they are, and how well its cost is predicted.

    On emulated clusters of eight hosts: links with latency in 2 racks of 4 and 4 racks of 2; trunks that racks share, hosts of
    different rates, hosts with two cards. About 45 minutes; needs root.

    Example: hocket bench orders --row gloo-2
    """
    from hocket.bench.orders.rows import ROWS, Compared, measure  # noqa: PLC0415  # loads what only this verb needs
    from hocket.bench.orders.scored import Scored  # noqa: PLC0415  # the same

    if listed(rows, ROWS):
        return
    table = Table("row", "what", "measured", "bar", "holds")
    measured = []
    for row in measure(rows or ROWS):
        click.echo(f"{row.name}: {row.value:.3g}", err=True)
        measured.append(msgspec.to_builtins(row))
        table.add_row(
            row.name, row.what, f"{row.value:.3g}", f"{row.bar:g}", "yes" if row.value >= row.bar else "no"
        )
        if isinstance(row, Scored):
            table.add_row(
                "", f"  chosen over the best of {len(row.orders)}", f"{row.chosen_to_best:.3f}", "", ""
            )
            table.add_row("", "  given over chosen", f"{row.gain:.2f}", "", "")
        if isinstance(row, Compared):
            for order, time_s in row.times_s.items():
                shown = ",".join(map(str, row.orders[order]))
                table.add_row("", f"  {order}: {shown}", f"{time_s * 1e3:.1f} ms", "", "")
    publish((table,), {"rows": measured}, as_json=as_json, output=output)


COMMANDS = [policies, order_search, orders]

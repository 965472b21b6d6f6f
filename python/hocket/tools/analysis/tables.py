"""Tables of text for an analysis; this module knows the answers, not the questions."""

from __future__ import annotations

from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table

from hocket.tools.analysis.analyse import Analysis
from hocket.tools.analysis.diff import Diff
from hocket.tools.analysis.distribution import Quantile
from hocket.tools.analysis.summary import Summary

ROWS_MAX = 40
"""Limit of rows of a table; `--json` has all."""

UNKNOWN = "\u2013"

NODES_MAX = 16
"""Limit of nodes of a matrix on a screen."""


def tables(trace: Analysis) -> Iterator[Table]:
    if trace.records:
        yield _layers(trace)
        yield _pairs(trace)
    if 1 < len(trace.volume.nodes) <= NODES_MAX:
        yield _matrix(trace)
    if trace.records:
        yield _distributions(trace)
    if any(each.error_us != 0 for each in trace.clocks):
        yield _clocks(trace)
    if trace.phases:
        yield _phases(trace)
    if trace.servers:
        yield _servers(trace)
    if trace.keys:
        yield _keys(trace)
    if any(each.records for each in trace.dependencies):
        yield _dependencies(trace)
    if trace.critical_paths or trace.launch_path:
        yield _critical_path(trace)
    if trace.stragglers or trace.lateness:
        yield _stragglers(trace)


def diff_table(found: Diff) -> Table:
    table = Table("quantity", "A", "B", "B / A", title="Differences")
    for each in found.differences:
        ratio = "" if each.ratio is None else f"{each.ratio:.3f}"
        table.add_row(escape(each.quantity), _number(each.a), _number(each.b), ratio)
    return table


def _layers(trace: Analysis) -> Table:
    sizes = trace.sizes
    table = Table("layer", "messages", "bytes", "shortest, B", "longest, B", title="Message sizes by layer")
    for each in sizes.layers[:ROWS_MAX]:
        counts = (each.messages, each.bytes, each.shortest_bytes, each.longest_bytes)
        table.add_row(escape(each.name), *(f"{count:,}" for count in counts))
    if len(sizes.layers) > ROWS_MAX:
        table.add_row(f"and {len(sizes.layers) - ROWS_MAX} more", "", "", "", "")
    extremes = (_number(sizes.shortest_bytes), _number(sizes.longest_bytes))
    table.add_row("all, with set-up", f"{sizes.messages:,}", f"{sizes.bytes:,}", *extremes)
    return table


def _pairs(trace: Analysis) -> Table:
    table = Table("node", "sent, bytes", "received, bytes", title="Volume by node")
    for each in trace.volume.nodes[:ROWS_MAX]:
        table.add_row(str(each.node), f"{each.sent_bytes:,}", f"{each.received_bytes:,}")
    if len(trace.volume.nodes) > ROWS_MAX:
        table.add_row(f"and {len(trace.volume.nodes) - ROWS_MAX} more", "", "")
    return table


def _matrix(trace: Analysis) -> Table:
    names = [str(each.node) for each in trace.volume.nodes]
    table = Table("from \\ to", *names, title="Communication matrix, MB")
    for name, row in zip(names, trace.volume.matrix_bytes(), strict=True):
        table.add_row(name, *(f"{size / 1e6:,.2f}" if size else "·" for size in row))
    return table


def _distributions(trace: Analysis) -> Table:
    columns: list[tuple[str, tuple[Quantile, ...]]] = [("message size, B", trace.sizes.cdf_bytes)]
    columns += [(f"between arrivals at {each.node}, µs", each.cdf_us) for each in trace.arrivals[:4]]
    table = Table(
        "share of messages", *(name for name, _ in columns), title="Cumulative distributions: at most"
    )
    shares = sorted({quantile.share for _, quantiles in columns for quantile in quantiles})
    for share in shares:
        found = ([each.value for each in quantiles if each.share == share] for _, quantiles in columns)
        table.add_row(f"{100 * share:g} %", *(f"{values[0]:,}" if values else "" for values in found))
    return table


def _clocks(trace: Analysis) -> Table:
    table = Table("rank", "drift", "times are right to", title="Clocks, against the job's")
    for each in trace.clocks[:ROWS_MAX]:
        drift = UNKNOWN if each.drift_ppm is None else f"{each.drift_ppm:.2f} ppm"
        table.add_row(str(each.node), drift, UNKNOWN if each.error_us is None else _time(each.error_us))
    return table


def _phases(trace: Analysis) -> Table:
    heads = (
        "computation",
        "1: pure comp.",
        "2: overlapped",
        "3: comm.",
        "waiting",
        "iteration",
        "2 / (1 + 3)",
    )
    table = Table("worker", "iterations", *heads, title="Phases, mean per iteration")
    for each in trace.phases[:ROWS_MAX]:
        parts = (
            each.computation,
            each.pure_computation,
            each.overlapped,
            each.communication,
            each.waiting,
            each.iteration,
        )
        ratio = "" if each.overlap_ratio is None else f"{100 * each.overlap_ratio:.2f} %"
        table.add_row(str(each.node), str(each.iterations), *map(_mean, parts), ratio)
    return table


def _servers(trace: Analysis) -> Table:
    table = Table("server", "mode", "search", "synchronisation", "update", title="Server, mean per key")
    for each in trace.servers[:ROWS_MAX]:
        mode = {True: "synchronous", False: "asynchronous", None: ""}[each.synchronous]
        table.add_row(str(each.node), mode, *map(_mean, (each.search, each.synchronisation, each.update)))
    return table


def _keys(trace: Analysis) -> Table:
    kinds = ("search", "synchronisation", "update", "exchange")
    shown = [kind for kind in kinds if any(getattr(each, kind) for each in trace.keys)]
    table = Table("key", "at", *shown, title="Times of each key: mean (least to 99 %)")
    for each in trace.keys[:ROWS_MAX]:
        at = "all ranks" if each.node is None else f"server {each.node}"
        table.add_row(escape(each.name), at, *(_spread(getattr(each, kind)) for kind in shown))
    if len(trace.keys) > ROWS_MAX:
        table.add_row(f"and {len(trace.keys) - ROWS_MAX} more", "", *("" for _ in shown))
    return table


def _dependencies(trace: Analysis) -> Table:
    table = Table(
        "dependency", "records", "waiting for several", "mean d_time, one to one", title="Dependencies"
    )
    for each in trace.dependencies:
        table.add_row(each.kind, f"{each.records:,}", f"{each.one_to_many:,}", _mean(each.d_time))
    return table


def _critical_path(trace: Analysis) -> Table:
    table = Table("of", "bounded by", "share", "mean", "99 %", title="Critical path of an iteration")
    for path in trace.critical_paths[:ROWS_MAX]:
        for link in path.links:
            table.add_row(
                f"worker {path.node}",
                escape(link.bound),
                _percent(link.share),
                _mean(link.time),
                _time(link.time.p99_us),
            )
        last = ", ".join(f"{each.name} {_percent(each.iterations_share)}" for each in path.last_layers[:5])
        table.add_row(f"worker {path.node}", escape(f"last layer of an iteration: {last}"), "", "", "")
    for bound in trace.launch_path.bounds[:ROWS_MAX] if trace.launch_path else ():
        table.add_row(
            "job", escape(bound.bound), _percent(bound.share), _mean(bound.time), _time(bound.time.p99_us)
        )
    return table


def _stragglers(trace: Analysis) -> Table:
    table = Table("worker", "seen", "against the others", "slowest or last", title="Stragglers")
    for each in trace.stragglers[:ROWS_MAX]:
        against = f"{each.slower_than_median:.3f} times the median computation"
        table.add_row(str(each.node), f"{each.iterations} iterations", against, _percent(each.slowest_share))
    for late in trace.lateness[:ROWS_MAX]:
        after = f"push {_time(late.mean_after_first_us)} after the first"
        table.add_row(str(late.worker), f"at server {late.node}", after, _percent(late.last_share))
    return table


def _mean(summary: Summary | None) -> str:
    return UNKNOWN if summary is None else _time(summary.mean_us)


def _spread(summary: Summary | None) -> str:
    if summary is None:
        return UNKNOWN
    return f"{_time(summary.mean_us)} ({_time(summary.least_us)} to {_time(summary.p99_us)})"


def _time(value_us: float) -> str:
    return f"{value_us / 1000:,.3f} ms" if value_us >= 1000 else f"{value_us:.1f} µs"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.3f}".rstrip("0").rstrip(".")

"""Replay of a trace in virtual time: for each number of workers and bandwidth, the median iteration of the slowest worker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import msgspec
from rich.table import Table

from hocket.artefacts.cluster import Cluster
from hocket.cli.shared.output import publish, rate_text
from hocket.tools.replay.predicted import predicted
from hocket.tools.replay.run import Replayed
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.sweep import changed


def run(
    paths: Sequence[Path],
    cluster: Cluster,
    workers: Sequence[int | None],
    bandwidths: Sequence[float | None],
    *,
    conditions: Conditions,
    computation: float,
    shaped: bool,
    as_json: bool,
) -> None:
    """Print one outcome, or a list of them for several combinations. None: the recorded number, the cluster's rates."""
    found: list[tuple[int | None, float | None, Replayed]] = []
    for count, rate in product(workers, bandwidths):
        again = predicted(
            paths,
            changed(cluster, rate, None),
            workers=count,
            computation=computation,
            conditions=conditions,
            shaped=shaped,
        )
        found.append((count, rate, again))
    table = Table("", "median iteration of the slowest worker", "simulated / recorded")
    table.add_row("recorded", f"{found[0][2].recorded_median_s * 1e3:.2f} ms", "")
    for count, rate, again in found:
        title = "simulated"
        title += "" if count is None else f", workers: {count}"
        title += "" if rate is None else f", {rate_text(rate)}"
        table.add_row(title, f"{again.replayed_median_s * 1e3:.2f} ms", f"{again.ratio:.3f}")
    rows = [
        {"world": count, "bandwidth_bit_per_s": rate, **msgspec.to_builtins(again)}
        for count, rate, again in found
    ]
    publish((table,), rows[0] if len(rows) == 1 else rows, as_json=as_json)

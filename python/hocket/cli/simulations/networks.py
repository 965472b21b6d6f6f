"""Option of a generated network, in place of a cluster file: `--network leaf-spine:4x8,25Gbit,oversubscription=3`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

import click

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.cli.shared.options import cluster_option
from hocket.cli.shared.refuse import refuse
from hocket.cli.shared.values import One, count, rate
from hocket.tools.simulation.shapes import Kind, Shape
from hocket.tools.simulation.sweep import changed
from hocket.tools.simulation.wired import Wired, read

KINDS = get_args(Kind)

SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "latency": ("latency_s", lambda text: float(text) * 1e-6),
    "ranks": ("ranks_per_host", count),
    "nics": ("nics", count),
    "oversubscription": ("oversubscription", float),
    "spines": ("spines", count),
}
"""Field of `Shape` and value, by the name in the option; latencies are microseconds."""


FILE_ENDING = ".toml"


def shape(text: str) -> Shape | Wired:
    """Return the shape of `torus:4x4,10Gbit,latency=5`, or the network in a file of links. ValueError for anything else.

    >>> shape("leaf-spine:4x8,25Gbit,spines=2").extents
    (4, 8)
    """
    if text.endswith(FILE_ENDING):
        return read(Path(text))
    kind, _, rest = text.partition(":")
    size, speed, *more = rest.split(",")
    fields: dict[str, Any] = {}
    for each in more:
        name, _, value = each.partition("=")
        if name not in SETTINGS or SETTINGS[name][0] in fields:
            raise ValueError
        field, parse = SETTINGS[name]
        fields[field] = parse(value)
    extents = tuple(count(extent) for extent in size.split("x"))
    if kind not in KINDS:
        raise ValueError
    return Shape(kind=cast(Kind, kind), extents=extents, bit_per_s=rate(speed), **fields)


SHAPE = One(
    "shape",
    "a shape such as star:16,10Gbit, leaf-spine:4x8,25Gbit,oversubscription=3,spines=2, fat-tree:8,25Gbit "
    "or torus:4x4x4,100Gbit; or a file of links that ends in .toml",
    shape,
)

network_option = click.option(
    "--network",
    "shape",
    type=SHAPE,
    metavar="LINKS.toml|SHAPE:SIZE,RATE[,NAME=VALUE]...",
    help="A network in place of --cluster, from a file of links and switches or generated: star:HOSTS, "
    "leaf-spine:LEAVESxHOSTS, fat-tree:PORTS or "
    "torus:AxBxC; names are latency (µs), ranks (per host), nics (star), oversubscription and spines (leaf-spine).",
)
place_option = cluster_option("Cluster file (TOML); this or --network.")


def place(
    cluster_path: Path | None, shape: Shape | Wired | None, bandwidth_bit_per_s: float | None, *, shaped: bool
) -> Cluster | Shape | Wired:
    """Return the cluster in the file, at another rate if given, or the network. UsageError: both, none, or options of clusters."""
    if cluster_path is not None and shape is None:
        return changed(files.read(cluster_path, Cluster), bandwidth_bit_per_s, None)
    if shape is None or cluster_path is not None:
        raise click.UsageError("one of --cluster and --network says what the network is like")
    refuse(
        {"--bandwidth": bandwidth_bit_per_s},
        ("--bandwidth",),
        "the network has its own rates",
    )
    refuse(
        {"--shaped": shaped or None},
        ("--shaped",),
        "the testbed emulates a cluster file, no other network",
    )
    return shape

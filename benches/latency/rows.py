"""The rows of `python -m benches latency`: two sites of two hosts with a long and lossy trunk between them, beside Gloo.

Ranks have no file: they look at their network, choose a plan and set up their connections by themselves. An all-reduce of S bytes
brings S bytes over the trunk in each direction at least, so S over its time is at most the trunk's payload rate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from benches.emulated import in_emulation
from benches.row import Row
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.network import GOODPUT

TRUNK_BIT_PER_S, HOST_BIT_PER_S = 100e6, 1e9
SIZE_BYTES = 25_000_000
TURNS = 5
SHARE = 0.85
"""Target: share of the trunk's payload rate (issue 42)."""

PATHS = {
    "50ms-1%": (50e-3, 0.01),
    "50ms-0.1%": (50e-3, 0.001),
    "50ms-0%": (50e-3, 0.0),
    "20ms-1%": (20e-3, 0.01),
    "200ms-1%": (200e-3, 0.01),
    "200ms-0%": (200e-3, 0.0),
}
"""Round trip in seconds, and share of packets lost in each direction, by row. The first is the issue's."""


def sites(round_trip_s: float, loss: float) -> Cluster:
    """Two sites of two hosts. Each direction of the trunk loses `loss` of its packets."""
    hosts = tuple(
        Host(name=f"{site}{at}", rack=site, bandwidth_bit_per_s=HOST_BIT_PER_S)
        for site in ("east", "west")
        for at in range(2)
    )
    # A path crosses both sites' ends of the trunk.
    east = Rack(
        name="east", uplink_bit_per_s=TRUNK_BIT_PER_S, uplink_latency_s=round_trip_s / 4, uplink_loss=loss
    )
    west = Rack(name="west", uplink_bit_per_s=TRUNK_BIT_PER_S, uplink_latency_s=round_trip_s / 4)
    return Cluster(hosts=hosts, racks=(east, west))


def share(took_s: float) -> float:
    """The share of the trunk's payload rate that an all-reduce in that time has used.

    >>> round(share(8 * 25e6 / (100e6 * 1448 / 1514)), 6)
    1.0
    """
    return 8 * SIZE_BYTES / (TRUNK_BIT_PER_S * GOODPUT) / took_s


def measured(name: str, round_trip_s: float, loss: float, turns: int = TURNS) -> Iterator[Row]:
    """Shares of the trunk on the testbed; one row for each contender."""
    cluster = sites(round_trip_s, loss)
    argv = [
        sys.executable,
        "-m",
        "benches.directions.rank",
        "--turns",
        str(turns),
        "--bytes",
        str(SIZE_BYTES),
    ]
    times_s = in_emulation(cluster, [host.name for host in cluster.hosts], argv, told=False)
    for contender, each_s in times_s.items():
        yield Row.over(
            [share(one_s) for one_s in each_s],
            name=name,
            what=f"{contender}: share of the trunk's payload rate",
            target=SHARE if contender == "plan" and name in TARGETED else None,
            least=True,
        )


TARGETED = ("50ms-1%",)
ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    name: partial(measured, name, *path) for name, path in PATHS.items()
}

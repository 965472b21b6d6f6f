"""A cluster file's hosts for the search of orders: measured pairs, otherwise pairs from their links."""

from __future__ import annotations

import numpy as np

from hocket.artefacts.cluster import Cluster, ends
from hocket.artefacts.network import LATENCY_S, Network, network, restricted
from hocket.artefacts.ways import latency_matrix
from hocket.errors import ArtefactError
from hocket.planning.ordering.matrix import SHORTEST_S, Matrix, Numbers, build


def of_cluster(cluster: Cluster, *, skip_unreachable: bool = False) -> Matrix:
    """Pairs of a cluster's hosts, and the links that they share: cards of hosts and trunks of racks.

    `skip_unreachable`: leave out hosts without any measured pair, instead of raising an error.


    Raises ArtefactError when the file contradicts itself, UsageError when there is nothing to order.

    >>> from hocket.artefacts.cluster import Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> of_cluster(Cluster(hosts=hosts, latency_s=((0.0, 1e-4), (2e-4, 0.0)))).latency_s.tolist()
    [[0.0, 0.0002], [0.0002, 0.0]]
    """
    count = len(cluster.hosts)
    for title in ("latency_s", "bandwidth_bit_per_s"):
        rows = getattr(cluster, title)
        if rows and (len(rows) != count or any(len(row) != count for row in rows)):
            raise ArtefactError(f"cluster: `{title}` is not {count} rows of {count}, one for each host")
    measured = Matrix(hosts=(), latency_s=np.zeros((0, 0)))
    if cluster.latency_s or cluster.bandwidth_bit_per_s:
        measured = _built(
            cluster,
            _numbers(cluster.latency_s),
            _numbers(cluster.bandwidth_bit_per_s),
            skip_unreachable=skip_unreachable,
        )
    kept = [at for at, host in enumerate(cluster.hosts) if host.name not in measured.left_out]
    left = restricted(cluster, kept)
    between = network(left)
    notes = list(measured.notes)
    if latency_matrix(left) is None:
        notes.append(f"latencies are not in the file: {LATENCY_S * 1e6:.0f} µs between any two hosts")
    hosts = range(len(kept))
    latency_s = np.array([[between.path(a, b)[1] if a != b else 0.0 for b in hosts] for a in hosts])
    found = _built(left, np.maximum(latency_s, SHORTEST_S), _rates(left, between))
    racks: dict[str, list[int]] = {}
    for at, host in enumerate(left.hosts):
        racks.setdefault(host.rack, []).append(at)
    return Matrix(
        hosts=found.hosts,
        latency_s=found.latency_s,
        s_per_byte=found.s_per_byte,
        network=between,
        groups=tuple(map(tuple, racks.values())),
        slots=found.slots,
        left_out=measured.left_out,
        notes=tuple(dict.fromkeys((*notes, *found.notes))),
    )


def _rates(cluster: Cluster, between: Network) -> Numbers:
    """Measured rates, otherwise, and through other hosts, the rate of the narrowest link of each path."""
    measured, names = cluster.bandwidth_bit_per_s, [host.name for host in cluster.hosts]
    apart = {ends(way) for way in cluster.relays}

    def rate(a: int, b: int) -> float:
        direct = measured and frozenset((names[a], names[b])) not in apart
        return measured[a][b] if direct else between.bit_per_s(a, b)

    hosts = range(len(cluster.hosts))
    return np.array([[rate(a, b) for b in hosts] for a in hosts])


def _built(
    cluster: Cluster, latency_s: Numbers | None, bit_per_s: Numbers | None, *, skip_unreachable: bool = False
) -> Matrix:
    return build(
        [host.name for host in cluster.hosts],
        latency_s,
        bit_per_s,
        what=("cluster: `latency_s`", "cluster: `bandwidth_bit_per_s`"),
        slots=[host.slots for host in cluster.hosts],
        skip_unreachable=skip_unreachable,
    )


def _numbers(rows: tuple[tuple[float, ...], ...]) -> Numbers | None:
    return np.array(rows, dtype=np.float64) if rows else None

"""Latency, jitter and loss of packets between two hosts, from all links on their path in a cluster file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hocket.artefacts.cluster import Cluster, Directions, Host, Rack, both
from hocket.errors import ArtefactError

TIME_S_MAX = 3600.0
"""Limit of times: larger values are typing errors, milliseconds taken for seconds."""


@dataclass(frozen=True)
class Way:
    """Path of one ordered pair of hosts. `jitter_s` is the mean of the delay added to `latency_s`; `loss` a share of packets."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0


def ways(cluster: Cluster) -> tuple[tuple[Way, ...], ...] | None:
    """Return `[source][destination]`, by index of the host; None when the file has neither latency, jitter nor loss.

    Raises ArtefactError when the file contradicts itself, or has impossible values.

    >>> near, far = (Host(name=name, bandwidth_bit_per_s=1e9, latency_s=[1e-3, 0.0]) for name in "ab")
    >>> ways(Cluster(hosts=(near, far)))[0][1].latency_s
    0.001
    """
    latencies_s = latency_matrix(cluster)
    jitters_s = _matrix(
        cluster, "jitter_s", lambda host: host.jitter_s, lambda rack: rack.uplink_jitter_s, math.fsum
    )
    losses = _matrix(cluster, "loss", lambda host: host.loss, lambda rack: rack.uplink_loss, _either)
    if latencies_s is None and jitters_s is None and losses is None:
        return None
    count = range(len(cluster.hosts))
    nothing = tuple((0.0,) * len(count) for _ in count)
    parts = [each or nothing for each in (latencies_s, jitters_s, losses)]
    return tuple(
        tuple(Way() if a == b else Way(*(part[a][b] for part in parts)) for b in count) for a in count
    )


def no_ways(hosts: int) -> tuple[tuple[Way, ...], ...]:
    """Return the paths of hosts without latency, jitter or loss."""
    return ((Way(),) * hosts,) * hosts


def latency_matrix(cluster: Cluster) -> tuple[tuple[float, ...], ...] | None:
    """Return seconds from source to destination, by index of the host: measured, or the sum over links; None: not in the file."""
    matrix, count = cluster.latency_s, len(cluster.hosts)
    sums = _matrix(
        cluster, "latency_s", lambda host: host.latency_s, lambda rack: rack.uplink_latency_s, math.fsum
    )
    if not matrix:
        return sums
    if sums is not None:
        raise ArtefactError(
            "cluster: `latency_s` is given as a matrix and for single links\nhint: remove one of the two"
        )
    if len(matrix) != count or any(len(row) != count for row in matrix):
        raise ArtefactError(f"cluster: `latency_s` is not {count} rows of {count}, one for each host")
    for source, row in zip(cluster.hosts, matrix, strict=True):
        for destination, value in zip(cluster.hosts, row, strict=True):
            _check("latency_s", f"from {source.name} to {destination.name}", value)
    return matrix


def _matrix(
    cluster: Cluster,
    field: str,
    of_host: Callable[[Host], Directions | None],
    of_rack: Callable[[Rack], Directions | None],
    together: Callable[[Sequence[float]], float],
) -> tuple[tuple[float, ...], ...] | None:
    """Return the combined effect of each path's links; None when no link has any."""
    own = [_pair(field, f"of host {host.name}", of_host(host)) for host in cluster.hosts]
    trunks = {
        rack.name: _pair(f"uplink_{field}", f"of rack {rack.name}", of_rack(rack)) for rack in cluster.racks
    }
    if not any(own) and not any(trunks.values()):
        return None
    rows = []
    for a, source in enumerate(cluster.hosts):
        row = []
        for b, destination in enumerate(cluster.hosts):
            links = [(own[a], 0), (own[b], 1)]
            if source.rack != destination.rack:
                links[1:1] = [(trunks.get(source.rack), 0), (trunks.get(destination.rack), 1)]
            values = [pair[direction] for pair, direction in links if pair is not None]
            row.append(0.0 if a == b else together(values))
        rows.append(tuple(row))
    return tuple(rows)


def _pair(field: str, where: str, given: Directions | None) -> tuple[float, float] | None:
    if given is None:
        return None
    for value in both(given):
        _check(field, where, value)
    return both(given)


def _check(field: str, where: str, value: float) -> None:
    share = field.endswith("loss")
    most = 1.0 if share else TIME_S_MAX
    if not 0 <= value <= most:  # also catches NaN
        unit = "a share from 0 to 1" if share else f"seconds from 0 to {most:g}"
        raise ArtefactError(f"cluster: `{field}` {where} is {value}\nhint: it is {unit}")


def _either(losses: Sequence[float]) -> float:
    """Return the combined loss of several links in a row."""
    return 1.0 - math.prod(1.0 - each for each in losses)

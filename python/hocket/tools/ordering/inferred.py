"""Inference of trunks from matrices alone: if rates between groups of hosts are lower than within, the pairs share a link.

A matrix does not say whether pairs share a link. But rates between racks below those of the hosts' own links have a
cause, and nearly always it is one link for all of them. A trunk that is wider than a host's link leaves no such trace.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hocket.artefacts.cluster import Cluster, Host, Rack, both
from hocket.artefacts.network import network
from hocket.measure.rounds import tournament
from hocket.measure.topology import fastest_pair, find_racks, host_rates, settle_capacities
from hocket.planning.ordering.matrix import BITS, Matrix

HOSTS_MAX = 1024
"""Limit of hosts for this inference: larger matrices come from models, not from measurements of all pairs."""


def with_trunks(matrix: Matrix) -> Matrix:
    """The matrix with the trunks that its rates show, and a note that names them; unchanged when they show none.

    >>> rates = np.array([[0, 9e8, 1e8, 1e8], [9e8, 0, 1e8, 1e8], [1e8, 1e8, 0, 9e8], [1e8, 1e8, 9e8, 0]])
    >>> apart = np.ones((4, 4)) * 1e-4
    >>> s_per_byte = 8 / np.where(rates > 0, rates, np.inf)
    >>> with_trunks(Matrix(hosts=("a", "b", "c", "d"), latency_s=apart, s_per_byte=s_per_byte)).notes
    ('taken from the rates: a b and c d are racks behind trunks of 100 Mbit/s, which their pairs share',)
    """
    count = len(matrix.hosts)
    if matrix.s_per_byte is None or not 2 < count <= HOSTS_MAX:
        return matrix
    with np.errstate(divide="ignore"):
        rates = (BITS / matrix.s_per_byte).tolist()
    for host in range(count):
        rates[host][host] = 0.0
    racks = find_racks(rates, matrix.latency_s.tolist())
    if len(racks) == 1:
        return matrix
    between = [fastest_pair(rates, racks[a], racks[b]) for pairs in tournament(len(racks)) for a, b in pairs]
    alone = {pair: rates[pair[0]][pair[1]] for a, b in between for pair in ((a, b), (b, a))}
    trunks, _ = settle_capacities(rates, racks, alone)
    if all(rate is None for rate in trunks):
        return matrix
    place = {host: rack for rack, hosts in enumerate(racks) for host in hosts}
    cluster = Cluster(
        hosts=tuple(
            Host(name=name, rack=str(place[at]), bandwidth_bit_per_s=rate)
            for at, (name, rate) in enumerate(zip(matrix.hosts, host_rates(rates, {}), strict=True))
        ),
        racks=tuple(Rack(name=str(rack), uplink_bit_per_s=rate) for rack, rate in enumerate(trunks)),
        bandwidth_bit_per_s=tuple(tuple(rate or 1.0 for rate in row) for row in rates),
    )
    names = " and ".join(" ".join(matrix.hosts[host] for host in rack) for rack in racks)
    rates_of = [rate for each in trunks if each is not None for rate in both(each)]
    known = sorted({f"{rate / 1e6:.0f}" for rate in rates_of}, key=float)
    note = f"taken from the rates: {names} are racks behind trunks of {', '.join(known)} Mbit/s, which their pairs share"
    groups = tuple(map(tuple, racks))
    return replace(matrix, network=network(cluster), groups=groups, notes=(*matrix.notes, note))

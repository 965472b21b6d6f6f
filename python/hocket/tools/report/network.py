"""Section on the network: measured latency and bandwidth between hosts, with neighbours next to each other."""

from __future__ import annotations

import numpy as np

from hocket.artefacts.cluster import Cluster
from hocket.planning.ordering.matrix import Matrix
from hocket.planning.ordering.solve import find_groups
from hocket.tools.report import quantity
from hocket.tools.report.markup import tag
from hocket.tools.report.material import Material
from hocket.tools.report.matrix import heat_map
from hocket.tools.report.section import Section, absent

NAME, QUESTION = "network", "What is the network like?"

PAIRED_MAX = 6
"""Limit of hosts for which two maps fit side by side; for more, one is below the other."""


def section(material: Material) -> Section:
    """Return two heat maps; one line when the network was not measured."""
    cluster = material.run.cluster
    if cluster is None or not (cluster.latency_s or cluster.bandwidth_bit_per_s):
        return absent(
            NAME, QUESTION, "The network was not measured: `hocket probe` measures it before planning."
        )
    names = [host.name for host in cluster.hosts]
    racks = _groups(cluster)
    together = sorted(range(len(names)), key=lambda host: racks.index(racks[host]))
    shown, shown_racks = [names[host] for host in together], [racks[host] for host in together]
    maps = []
    if _square(cluster.bandwidth_bit_per_s, len(names)):
        maps.append(
            heat_map(
                _arranged(cluster.bandwidth_bit_per_s, together),
                shown,
                shown_racks,
                caption="Bandwidth of one flow alone; the stronger the colour, the faster",
                show=quantity.bandwidth,
                diagonal=True,
            )
        )
    if _square(cluster.latency_s, len(names)):
        caption = "Latency, half the round trip; the stronger the colour, the slower"
        show = quantity.seconds
        latency = _arranged(cluster.latency_s, together)
        maps.append(heat_map(latency, shown, shown_racks, caption=caption, show=show, tone="slow"))
    if not maps:
        return absent(
            NAME, QUESTION, f"The cluster's matrices do not fit its {len(names)} hosts; probe it again."
        )
    numbers = {
        "hosts": names,
        "bandwidth_bit_per_s": cluster.bandwidth_bit_per_s,
        "latency_s": cluster.latency_s,
    }
    style = {"class_": "pair"} if len(names) <= PAIRED_MAX else {}
    return Section(NAME, QUESTION, tag("div", *maps, **style), numbers=numbers)


def _groups(cluster: Cluster) -> list[str]:
    """Return the rack of each host; where the probe found a single rack, groups of hosts that are near each other."""
    racks = [host.rack for host in cluster.hosts]
    latency_s = np.array(cluster.latency_s)
    apart = ~np.eye(len(racks), dtype=bool)
    if len(set(racks)) > 1 or not _square(cluster.latency_s, len(racks)) or not (latency_s[apart] > 0).all():
        return racks
    near = find_groups(Matrix(hosts=tuple(host.name for host in cluster.hosts), latency_s=latency_s))
    if len(near) == 1:
        return racks
    names = {host: f"group {at + 1}" for at, group in enumerate(near) for host in group}
    return [names[host] for host in range(len(racks))]


def _arranged(values: tuple[tuple[float, ...], ...], hosts: list[int]) -> list[list[float]]:
    """Return rows and columns in another order of hosts."""
    return [[values[source][destination] for destination in hosts] for source in hosts]


def _square(values: tuple[tuple[float, ...], ...], side: int) -> bool:
    return side > 0 and len(values) == side and all(len(line) == side for line in values)

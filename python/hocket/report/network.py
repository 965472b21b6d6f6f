"""What is the network like? Measured latency and bandwidth between hosts, in the cluster's order."""

from __future__ import annotations

from hocket.report import quantity
from hocket.report.markup import tag
from hocket.report.material import Material
from hocket.report.matrix import heat_map
from hocket.report.section import Section, absent

NAME, QUESTION = "network", "What is the network like?"


def section(material: Material) -> Section:
    """Two heat maps; a line when the network was not measured."""
    cluster = material.run.cluster
    if cluster is None or not (cluster.latency_s or cluster.bandwidth_bit_per_s):
        return absent(
            NAME, QUESTION, "The network was not measured: `hocket probe` measures it before planning."
        )
    names = [host.name for host in cluster.hosts]
    racks = [host.rack for host in cluster.hosts]
    maps = []
    if _square(cluster.bandwidth_bit_per_s, len(names)):
        maps.append(
            heat_map(
                cluster.bandwidth_bit_per_s,
                names,
                racks,
                caption="Bandwidth of one TCP flow alone; the stronger the colour, the faster",
                show=quantity.bandwidth,
                diagonal=True,
            )
        )
    if _square(cluster.latency_s, len(names)):
        caption = "Latency, half the round trip; the stronger the colour, the slower"
        show = quantity.seconds
        maps.append(heat_map(cluster.latency_s, names, racks, caption=caption, show=show, tone="slow"))
    if not maps:
        return absent(
            NAME, QUESTION, f"The cluster's matrices do not fit its {len(names)} hosts; probe it again."
        )
    numbers = {
        "hosts": names,
        "bandwidth_bit_per_s": cluster.bandwidth_bit_per_s,
        "latency_s": cluster.latency_s,
    }
    return Section(NAME, QUESTION, tag("div", *maps, class_="pair"), numbers=numbers)


def _square(values: tuple[tuple[float, ...], ...], side: int) -> bool:
    return side > 0 and len(values) == side and all(len(line) == side for line in values)

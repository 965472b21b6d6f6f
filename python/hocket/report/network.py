"""What is the network like? Measured latency and bandwidth between hosts, those of one rack together."""

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
    together = sorted(range(len(names)), key=lambda host: racks.index(racks[host]))
    shown, shown_racks = [names[host] for host in together], [racks[host] for host in together]
    maps = []
    if _square(cluster.bandwidth_bit_per_s, len(names)):
        maps.append(
            heat_map(
                _arranged(cluster.bandwidth_bit_per_s, together),
                shown,
                shown_racks,
                caption="Bandwidth of one TCP flow alone; the stronger the colour, the faster",
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
    return Section(NAME, QUESTION, tag("div", *maps, class_="pair"), numbers=numbers)


def _arranged(values: tuple[tuple[float, ...], ...], hosts: list[int]) -> list[list[float]]:
    """Rows and columns in another order of hosts."""
    return [[values[source][destination] for destination in hosts] for source in hosts]


def _square(values: tuple[tuple[float, ...], ...], side: int) -> bool:
    return side > 0 and len(values) == side and all(len(line) == side for line in values)

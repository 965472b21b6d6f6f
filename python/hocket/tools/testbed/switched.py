"""Cluster for the switch in user space: pure functions from a cluster to its order and to lines of `ip` and `tc`.

The kernel limits a host's own outgoing link in the host's namespace, as without the switch, so that programs see a full link as on
a real machine. The switch does the rest: latency, jitter and loss of packets, both trunks, the link into the host.
"""

from __future__ import annotations

from msgspec import Struct

from hocket.artefacts.cluster import Cluster, both
from hocket.artefacts.network import IN, OUT, QUEUE_MS
from hocket.artefacts.ways import Way
from hocket.errors import TestbedError
from hocket.tools.testbed import wiring

INTERFACE = "eth0"
CLONE_DEVICE = "/dev/net/tun"
NO_DEVICE = 69
"""Exit status of the switch's process if that device is missing or refused: EX_UNAVAILABLE of <sysexits.h>."""
MAC_PREFIX = "02:68:6b:00"
"""Prefix of MAC addresses; the switch takes the index of the host from the two bytes that follow."""


class Order(Struct, frozen=True, kw_only=True):
    """Order for the switch. `links`: byte/s, None unlimited; `ways[source * hosts + destination]`: links crossed, latency, jitter,
    loss.

    `batches`: True if hosts may hand over batches of segments; not with loss, which drops packets. `slots`: sums that each rack's
    switch holds at a time, None: it sums nothing; `near`: by host, its rack and the latency to its switch.
    """

    pids: tuple[int, ...]
    links: tuple[float | None, ...]
    ways: tuple[tuple[tuple[int, ...], float, float, float], ...]
    queue_s: float
    reorder: bool
    seed: int
    batches: bool
    slots: int | None = None
    near: tuple[tuple[int, float], ...] = ()


def order(
    cluster: Cluster, ways: tuple[tuple[Way, ...], ...], pids: list[int], slots: int | None = None
) -> Order:
    """Return the order for hosts in the network namespaces of these processes."""
    names = wiring.rack_names(cluster)
    uplinks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
    count = len(cluster.hosts)
    links: list[float | None] = [both(host.bandwidth_bit_per_s)[IN] / 8 for host in cluster.hosts]
    for name in names:
        rate = uplinks.get(name)
        links += [None, None] if rate is None else [each / 8 for each in both(rate)]
    found = []
    for a, source in enumerate(cluster.hosts):
        for b, destination in enumerate(cluster.hosts):
            crossed: tuple[int, ...] = (b,)
            if source.rack != destination.rack:
                out, _ = trunk_links(count, names.index(source.rack))
                _, back = trunk_links(count, names.index(destination.rack))
                crossed = (out, back, b)
            way = ways[a][b]
            found.append((crossed, way.latency_s, way.jitter_s, way.loss))
    return Order(
        pids=tuple(pids),
        links=tuple(links),
        ways=tuple(found),
        queue_s=QUEUE_MS / 1000,
        reorder=bool(cluster.reorder),
        seed=cluster.seed or 0,
        batches=all(way.loss == 0 for row in ways for way in row),
        slots=slots,
        near=tuple(
            (names.index(host.rack), _near_s(cluster, ways, at)) for at, host in enumerate(cluster.hosts)
        ),
    )


def _near_s(cluster: Cluster, ways: tuple[tuple[Way, ...], ...], at: int) -> float:
    """Return the latency between a host and its rack's switch: half of that to a neighbour, or a quarter of one to another rack."""
    others = [other for other in range(len(ways)) if other != at]
    beside = next((other for other in others if cluster.hosts[other].rack == cluster.hosts[at].rack), None)
    if beside is not None:
        return ways[at][beside].latency_s / 2
    return ways[at][others[0]].latency_s / 4 if others else 0.0


def description(order: Order) -> str:
    """Return the description for the program `hocket-switch`; `crates/switch/src/description.rs` has its form.

    >>> way = ((0,), 0.001, 0.0, 0.5)
    >>> order = Order(pids=(7,), links=(None, 1e6), ways=(way,), queue_s=0.05, reorder=True, seed=3, batches=False)
    >>> print(description(order), end="")
    queue_s 0.05
    reorder true
    seed 3
    link unlimited
    link 1000000.0
    way 0.001 0.0 0.5 0
    """
    lines = [f"queue_s {order.queue_s!r}", f"reorder {str(order.reorder).lower()}", f"seed {order.seed}"]
    lines += [f"link {'unlimited' if rate is None else repr(rate)}" for rate in order.links]
    lines += [
        f"way {latency_s!r} {jitter_s!r} {loss!r} {','.join(map(str, crossed)) or '-'}"
        for crossed, latency_s, jitter_s, loss in order.ways
    ]
    if order.slots is not None:
        lines += [f"slots {order.slots}", *(f"rack {rack} {near_s!r}" for rack, near_s in order.near)]
    return "".join(f"{line}\n" for line in lines)


def trunk_links(hosts: int, rack: int) -> tuple[int, int]:
    """Return the indices of the links of a rack's trunk, out and in: they follow those of the hosts."""
    return hosts + 2 * rack, hosts + 2 * rack + 1


def mac(index: int) -> bytes:
    """Return the address of a host.

    >>> mac(258).hex(":")
    '02:68:6b:00:01:02'
    """
    return bytes.fromhex(MAC_PREFIX.replace(":", "")) + index.to_bytes(2, "big")


def host_lines(cluster: Cluster) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Return, for each host, the lines of `ip` and of `tc` that configure its end of the switch."""
    if len(cluster.hosts) > wiring.HOSTS_MAX:
        raise TestbedError(f"{len(cluster.hosts)} hosts: a testbed has at most {wiring.HOSTS_MAX}")
    return tuple(
        (
            (
                f"link set {INTERFACE} address {mac(index).hex(':')}",
                # No unsolicited packets: they would shift the random sequence that decides which packets are lost.
                f"link set {INTERFACE} addrgenmode none",
                f"addr add {wiring.address(index)}/16 dev {INTERFACE}",
                f"link set {INTERFACE} up",
                "link set lo up",
            ),
            (wiring.shape(INTERFACE, both(host.bandwidth_bit_per_s)[OUT]),),
        )
        for index, host in enumerate(cluster.hosts)
    )

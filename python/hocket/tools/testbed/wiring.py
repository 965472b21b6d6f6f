"""Cluster in commands of `ip` and `tc`: pure functions from a cluster to batches of lines.

Links are veth pairs. Further cards of hosts meet at a bridge of their own, whatever the racks. A token bucket on each end shapes
one direction: its burst admits whole segments of TCP's offload, and its queue is bounded in time, which bounds the delay of a full
link. The kernel need not have netem.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.artefacts.cluster import Cluster, Directions, both, ends
from hocket.artefacts.network import BURST_BYTES_MIN, QUEUE_MS, SIDES, burst_bytes
from hocket.errors import TestbedError

CARDS_MAX = 8
"""Limit of a host's cards, with a subnet each: 10.77, 10.78, …"""

HOSTS_MAX = 250
CARDS_TOLERANCE = 0.01
LANE_BITS = 3
"""Number of bits of each end's port that choose a lane: 64 lanes."""


@dataclass(frozen=True)
class Wiring:
    """Lines of commands. `switch`: for the namespace of the bridges; `hosts[i]`: for host i. Run by `ip -batch` and `tc -batch`."""

    switch_ip: tuple[str, ...]
    switch_tc: tuple[str, ...]
    hosts_ip: tuple[tuple[str, ...], ...]
    hosts_tc: tuple[tuple[str, ...], ...]


def address(index: int, card: int = 0) -> str:
    """Return the IPv4 address of a network card of host `index`."""
    return f"10.{77 + card}.0.{index + 1}"


def trunk(index: int) -> str:
    """Return the interface of rack `index` towards the other racks."""
    return f"trunk{index}"


def ports(cluster: Cluster, index: int) -> tuple[str, ...]:
    """Return the switch's interfaces towards host `index`, one per card."""
    more = range(1, len(cluster.hosts[index].cards_bit_per_s or (0,)))
    return (f"host{index}", *(f"host{index}card{card}" for card in more))


def wire(cluster: Cluster, pids: list[int]) -> Wiring:
    """Return commands for a cluster whose host `i` lives in the network namespace of process `pids[i]`."""
    if len(cluster.hosts) > HOSTS_MAX:
        raise TestbedError(f"{len(cluster.hosts)} hosts: a testbed has at most {HOSTS_MAX}")
    names = rack_names(cluster)
    uplinks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
    switch_ip = ["link set lo up", "link add core type bridge", "link set core up"]
    switch_tc = []
    for index, name in enumerate(names):
        switch_ip += [
            f"link add rack{index} type bridge",
            f"link set rack{index} up",
            f"link add {trunk(index)} type veth peer name down{index}",
            f"link set {trunk(index)} master rack{index} up",
            f"link set down{index} master core up",
        ]
        rate = uplinks.get(name)
        if rate is not None:
            switch_tc += _trunk_shapes(index, rate)
    for card in range(1, _cards(cluster)):
        switch_ip += [f"link add card{card} type bridge", f"link set card{card} up"]
    hosts_ip, hosts_tc = [], []
    for index, host in enumerate(cluster.hosts):
        (out, into), *more = map(both, host.cards_bit_per_s or (host.bandwidth_bit_per_s,))
        switch_ip += [
            f"link add host{index} type veth peer name eth0 netns {pids[index]}",
            f"link set host{index} master rack{names.index(host.rack)} up",
        ]
        switch_tc.append(shape(f"host{index}", into))
        own_ip = [f"addr add {address(index)}/16 dev eth0", "link set eth0 up", "link set lo up"]
        own_tc = (
            [shape("eth0", out)] if host.flow_bit_per_s is None else lanes("eth0", out, host.flow_bit_per_s)
        )
        for card, (out, into) in enumerate(more, 1):
            switch_ip += [
                f"link add host{index}card{card} type veth peer name eth{card} netns {pids[index]}",
                f"link set host{index}card{card} master card{card} up",
            ]
            switch_tc.append(shape(f"host{index}card{card}", into))
            own_ip += [f"addr add {address(index, card)}/16 dev eth{card}", f"link set eth{card} up"]
            own_tc.append(shape(f"eth{card}", out))
        hosts_ip.append(tuple(own_ip))
        hosts_tc.append(tuple(own_tc))
    return Wiring(tuple(switch_ip), tuple(switch_tc), tuple(hosts_ip), tuple(hosts_tc))


def apart(cluster: Cluster, index: int) -> list[str]:
    """Return the lines on host `index` that keep it from the hosts that it reaches through others only."""
    own, at = cluster.hosts[index].name, {host.name: other for other, host in enumerate(cluster.hosts)}
    others = [at[name] for way in cluster.relays if own in ends(way) for name in ends(way) - {own}]
    return [
        f"route add unreachable {address(other, card)}/32"
        for other in others
        for card in range(max(len(cluster.hosts[other].cards_bit_per_s), 1))
    ]


def _cards(cluster: Cluster) -> int:
    """Return the largest number of cards of a host; TestbedError if a host's rates do not add up."""
    for host in cluster.hosts:
        cards = [both(card) for card in host.cards_bit_per_s]
        for side, whole in enumerate(both(host.bandwidth_bit_per_s) if cards else ()):
            together = sum(card[side] for card in cards)
            if len(cards) > CARDS_MAX or abs(together / whole - 1) > CARDS_TOLERANCE:
                raise TestbedError(
                    f"host {host.name}: {len(cards)} cards of {together:.3g} bit/s {SIDES[side]} together, "
                    f"bandwidth_bit_per_s says {whole:.3g}\n"
                    f"hint: at most {CARDS_MAX} cards, and their sum is the host's rate"
                )
    return max(len(host.cards_bit_per_s) for host in cluster.hosts)


def rack_names(cluster: Cluster) -> list[str]:
    """Return racks in the order in which hosts name them."""
    return list(dict.fromkeys(host.rack for host in cluster.hosts))


def shape(interface: str, bit_per_s: float) -> str:
    """Return the line that limits the rate out of an interface."""
    burst = burst_bytes(bit_per_s)
    return f"qdisc add dev {interface} root tbf rate {int(bit_per_s)}bit burst {burst} latency {QUEUE_MS}ms"


def reshape(cluster: Cluster, rack: str, bit_per_s: Directions) -> tuple[str, ...]:
    """Return the lines that change the rate of a rack's uplink, which had one."""
    at = rack_names(cluster).index(rack)
    return tuple(line.replace(" add ", " change ", 1) for line in _trunk_shapes(at, bit_per_s))


def _trunk_shapes(index: int, bit_per_s: Directions) -> list[str]:
    """Return the lines that limit a rack's uplink: out of the rack's bridge, and out of the core's into it."""
    out, into = both(bit_per_s)
    return [shape(trunk(index), out), shape(f"down{index}", into)]


def lanes(interface: str, bit_per_s: float, flow_bit_per_s: float) -> list[str]:
    """Return the lines that limit the rate out of an interface, and each connection's share of it."""
    burst, flow = burst_bytes(bit_per_s), int(min(flow_bit_per_s, bit_per_s))
    lines = [
        f"qdisc add dev {interface} root handle 1: htb default 100 r2q 1000",
        f"class add dev {interface} parent 1: classid 1:1 htb rate {int(bit_per_s)}bit burst {burst} cburst {burst}",
    ]
    ports = range(1 << LANE_BITS)
    mask = (len(ports) - 1) << 1  # the lowest bit of the system's default is the same for most
    for lane, (source, destination) in enumerate((a, b) for a in ports for b in ports):
        minor = f"{0x100 + lane:x}"
        lines += [
            f"class add dev {interface} parent 1:1 classid 1:{minor} htb rate {flow // len(ports) ** 2}bit ceil {flow}bit "
            f"burst {BURST_BYTES_MIN} cburst {BURST_BYTES_MIN}",
            f"qdisc add dev {interface} parent 1:{minor} bfifo limit {max(int(flow / 8 * QUEUE_MS / 1000), BURST_BYTES_MIN)}",
            f"filter add dev {interface} parent 1: protocol ip u32 match ip sport {source << 1} {mask:#x} "
            f"match ip dport {destination << 1} {mask:#x} flowid 1:{minor}",
        ]
    return lines

"""The machines of a job and the network between them, as written by hand for a testbed or measured by a probe."""

from __future__ import annotations

from msgspec import Struct

Directions = float | tuple[float, float]
"""One value for both directions, or [out, in]: for what leaves the host or rack, and for what enters it."""


class Host(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine.

    Attributes:
        name: of the host, unique in the cluster.
        rack: name of its rack.
        slots: how many ranks it takes; ranks fill slots in host order.
        bandwidth_bit_per_s: rate of its own link, in each direction.
        cards_bit_per_s: rates of its network cards, where it has several; their sum is `bandwidth_bit_per_s`. A testbed gives each
            card a network of its own.
        flow_bit_per_s: the most that a testbed gives one TCP connection of what leaves the host, as clouds and bundles of links
            do. Connections are spread over 64 lanes by the last bits of their ports.
        address: at which other hosts reach it, as the probe found it.
        latency_s: for a testbed, what its link adds to each packet's time.
        jitter_s: for a testbed, the mean of an exponentially distributed delay on top of the latency.
        loss: for a testbed, the share of packets that its link loses.
    """

    name: str
    rack: str = "rack0"
    slots: int = 1
    bandwidth_bit_per_s: float
    cards_bit_per_s: tuple[float, ...] = ()
    flow_bit_per_s: float | None = None
    address: str | None = None
    latency_s: Directions | None = None
    jitter_s: Directions | None = None
    loss: Directions | None = None


class Rack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts behind one switch.

    Attributes:
        name: of the rack, unique in the cluster.
        uplink_bit_per_s: rate of its trunk to the other racks, in each direction; None: unlimited.
        uplink_latency_s: of the trunk, as `latency_s` of `Host`.
        uplink_jitter_s: of the trunk, as `jitter_s` of `Host`.
        uplink_loss: of the trunk, as `loss` of `Host`.
    """

    name: str
    uplink_bit_per_s: float | None = None
    uplink_latency_s: Directions | None = None
    uplink_jitter_s: Directions | None = None
    uplink_loss: Directions | None = None


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts in the given order, their racks and, when measured, host-to-host matrices (row: source).

    A testbed emulates the latency, jitter and loss in the file (`artefacts/ways.py`): `latency_s` as the time from source to
    destination, which may differ from the opposite direction; without it, the sum of what the links on the path add.

    Attributes:
        version: of the file's schema.
        hosts: in the given order.
        racks: of the hosts.
        latency_s: half the round trip, as the row's host measures it, since a round trip does not tell its two directions apart.
            The diagonal is zero.
        latency_precision: the part of each latency by which it may be wrong (95 %; 1: by anything).
        bandwidth_bit_per_s: what one flow alone gets. The diagonal is the bandwidth within the host.
        streams: how many TCP connections fill a path that gives each of them less than it has; symmetric.
        measured_at: when the probe measured it.
        reorder: for a testbed, whether jitter may let a packet overtake others of its pair of hosts.
        seed: for a testbed, of jitter and loss.
    """

    version: int = 1
    hosts: tuple[Host, ...]
    racks: tuple[Rack, ...] = ()
    latency_s: tuple[tuple[float, ...], ...] = ()
    latency_precision: tuple[tuple[float, ...], ...] = ()
    bandwidth_bit_per_s: tuple[tuple[float, ...], ...] = ()
    streams: tuple[tuple[int, ...], ...] = ()
    measured_at: str | None = None
    reorder: bool | None = None
    seed: int | None = None

"""Machines of a job and the network between them, written by hand for a testbed or measured by a probe."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

Directions = float | tuple[float, float]
"""One value for both directions, or [out, in] of the host or rack."""


def both(given: Directions) -> tuple[float, float]:
    """Return the values out and in.

    >>> both(1e9), both((2e7, 1e8))
    ((1000000000.0, 1000000000.0), (20000000.0, 100000000.0))
    """
    out, into = given if isinstance(given, tuple | list) else (given, given)
    return out, into


def directions(out: float, into: float) -> Directions:
    """Return two values in their shortest form.

    >>> directions(1e9, 1e9), directions(2e7, 1e8)
    (1000000000.0, (20000000.0, 100000000.0))
    """
    return out if out == into else (out, into)


def ends(way: Sequence[str]) -> frozenset[str]:
    """Return the two hosts between which a way of `relays` leads, in either direction."""
    return frozenset((way[0], way[-1]))


class Host(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine.

    Attributes:
        name: name of the host, unique in the cluster.
        rack: its rack's name.
        slots: number of ranks that the host takes; ranks fill slots in host order.
        bandwidth_bit_per_s: rate of its own link: one for both directions, or [out, in].
        cards_bit_per_s: rates of its network cards, if it has several, each as `bandwidth_bit_per_s`, which is their sum. A testbed
            gives each card a network of its own.
        flow_bit_per_s: a testbed's limit of one outgoing TCP connection, as in clouds and bundles of links.
            Connections are spread over 64 lanes by the last bits of their ports.
        address: its address for other hosts, as the probe found it.
        latency_s: for a testbed, the latency that its link adds to each packet.
        jitter_s: for a testbed, the mean of an exponentially distributed delay on top of the latency.
        loss: for a testbed, the share of packets that its link loses.
    """

    name: str
    rack: str = "rack0"
    slots: int = 1
    bandwidth_bit_per_s: Directions
    cards_bit_per_s: tuple[Directions, ...] = ()
    flow_bit_per_s: float | None = None
    address: str | None = None
    latency_s: Directions | None = None
    jitter_s: Directions | None = None
    loss: Directions | None = None


class Rack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts behind one switch.

    Attributes:
        name: name of the rack, unique in the cluster.
        uplink_bit_per_s: rate of its trunk to the other racks: one for both directions, or [out, in]; None: unlimited.
        uplink_latency_s: latency of the trunk, as `latency_s` of `Host`.
        uplink_jitter_s: jitter of the trunk, as `jitter_s` of `Host`.
        uplink_loss: loss of the trunk, as `loss` of `Host`.
    """

    name: str
    uplink_bit_per_s: Directions | None = None
    uplink_latency_s: Directions | None = None
    uplink_jitter_s: Directions | None = None
    uplink_loss: Directions | None = None


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts in the given order, their racks and, when measured, host-to-host matrices (row: source).

    A testbed emulates the latency, jitter and loss in the file (`artefacts/ways.py`): `latency_s` as the time from
    source to destination, which may differ by direction; without it, the sum over the links on the path.

    Attributes:
        version: version of the file's schema.
        hosts: hosts in the given order.
        racks: racks of the hosts.
        latency_s: half the round trip measured by the row's host, since a round trip does not separate its two
            directions.
            The diagonal is zero.
        latency_precision: relative uncertainty of each latency (95 %; 1: unknown).
        bandwidth_bit_per_s: rate of a single flow. The diagonal is the bandwidth within the host.
        streams: number of TCP connections that fill a path on which a single one cannot; symmetric.
        relays: ways between two hosts of which neither can call the other: the two at the ends, and between them the hosts through
            which all that they send goes, in both directions.
        measured_at: time at which the probe measured.
        reorder: for a testbed, True if jitter may let a packet overtake others of its pair of hosts.
        seed: for a testbed, seed of jitter and loss.
    """

    version: int = 1
    hosts: tuple[Host, ...]
    racks: tuple[Rack, ...] = ()
    latency_s: tuple[tuple[float, ...], ...] = ()
    latency_precision: tuple[tuple[float, ...], ...] = ()
    bandwidth_bit_per_s: tuple[tuple[float, ...], ...] = ()
    streams: tuple[tuple[int, ...], ...] = ()
    relays: tuple[tuple[str, ...], ...] = ()
    measured_at: str | None = None
    reorder: bool | None = None
    seed: int | None = None

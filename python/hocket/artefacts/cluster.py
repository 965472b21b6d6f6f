"""Machines of a job and the network between them, as written by hand for a testbed or measured by a probe."""

from __future__ import annotations

from msgspec import Struct

Directions = float | tuple[float, float]
"""The same in both directions, or [out, in]: what leaves the host or the rack, and what comes to it."""


class Host(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine. `bandwidth_bit_per_s` is its own link, each direction; ranks fill `slots` in host order.

    `cards_bit_per_s`: of each of its network cards, where it has several: a testbed gives each a network of its own. Their sum
    is `bandwidth_bit_per_s`. `flow_bit_per_s`: the most that a testbed gives each TCP connection of what leaves the host, as
    clouds do, and bundles of links: connections are spread over 64 lanes by the last bits of their ports.

    For a testbed, what its link does to each packet: `latency_s`; `jitter_s`, the mean of an exponentially distributed delay on top
    of it; `loss`, the share of packets that is lost.
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
    """Hosts behind one switch. `uplink_bit_per_s` is its trunk to the other racks, each direction; None: unlimited.

    Latency, jitter and loss of the trunk are as those of `Host`.
    """

    name: str
    uplink_bit_per_s: float | None = None
    uplink_latency_s: Directions | None = None
    uplink_jitter_s: Directions | None = None
    uplink_loss: Directions | None = None


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts in the given order, their racks, and, when measured, host-to-host matrices (row: source).

    `latency_s` is half the round trip, as the row's host measures it, and `latency_precision` the part of it by which it may be
    wrong (95 %; 1: by anything); a round trip does not tell its two directions apart.
    `bandwidth_bit_per_s` is what one flow alone gets. Diagonals are zero latency and the bandwidth within the host. `streams`: how
    many TCP connections it takes to fill a path that gives each of them less than it has; symmetric.

    A testbed emulates what the file says of latency, jitter and loss (`artefacts/ways.py`): `latency_s` as the time from source to
    destination, which may differ from the way back; or, without it, the sum of what the links on the way add. `reorder`: jitter
    may let a packet overtake others of its pair of hosts. `seed`: of jitter and loss.
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

"""Machines of a job and the network between them, as written by hand for a testbed or measured by a probe."""

from __future__ import annotations

from msgspec import Struct


class Host(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine. `bandwidth_bit_per_s` is its own link, each direction; ranks fill `slots` in host order."""

    name: str
    rack: str = "rack0"
    slots: int = 1
    bandwidth_bit_per_s: float
    address: str | None = None


class Rack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts behind one switch. `uplink_bit_per_s` is its trunk to the other racks, each direction; None: unlimited."""

    name: str
    uplink_bit_per_s: float | None = None


class Cluster(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts in the given order, their racks, and, when measured, host-to-host matrices (row: source).

    `latency_s` is half the round trip; `bandwidth_bit_per_s` one TCP flow alone. Diagonals are zero latency and
    the bandwidth within the host.
    """

    version: int = 1
    hosts: tuple[Host, ...]
    racks: tuple[Rack, ...] = ()
    latency_s: tuple[tuple[float, ...], ...] = ()
    bandwidth_bit_per_s: tuple[tuple[float, ...], ...] = ()
    measured_at: str | None = None

"""Movers of a group's collectives: shared memory on one host, and programs between hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hocket import _native
from hocket.policy.selection import flat_bytes
from hocket.policy.topology import Topology
from hocket.torch.backend.calls import Calls
from hocket.torch.backend.hosts import Hosts
from hocket.torch.backend.meeting import Meeting
from hocket.torch.backend.messages import TAG_BITS
from hocket.torch.backend.node import Node
from hocket.torch.backend.programs import Programs

Collectives = _native.HostGroup | Hosts
"""Mover within a host or between hosts, with the same methods; roots are positions in the group."""


def collectives_of(
    node: Node, ranks: Sequence[int], store: Any, number: int, timeout_s: float
) -> Collectives:
    """Make the mover of a group of `ranks`, which are numbered as in the world.

    Every member must call this; `store` is the group's own, `number` its number.
    """
    own = node.job.rank
    hosts: dict[str, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(node.job.hosts[rank], []).append(rank)
    meeting = Meeting(store, timeout_s)
    area = node.engine.allocate(_native.HostGroup.AREA_BYTES)
    store.set(f"hocket/area/{own}", str(area.arena_offset))
    here = hosts[node.job.hosts[own]]
    members = [(rank, int(meeting.read(f"hocket/area/{rank}", rank))) for rank in here]
    local = _native.HostGroup(
        node.engine,
        area,
        members=members,
        timeout_s=timeout_s,
        flat_bytes=flat_bytes(node.tuning, len(here)),
    )
    if len(hosts) == 1:
        return local
    leaders = [host[0] for host in hosts.values()]
    topology = Topology.of(node.job.hosts, node.cluster)
    return Hosts(
        node.engine,
        local,
        Programs(node.engine, leaders, topology=topology, tuning=node.tuning, group=number),
        Calls(store, own, leaders),
        ranks=ranks,
        hosts=list(hosts.values()),
        own=own,
        tag=number << TAG_BITS,
        timeout_s=timeout_s,
    )

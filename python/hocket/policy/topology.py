"""Host and rack of each rank, and the network between ranks: the facts on which handlers may branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import (
    BIT_PER_S,
    LATENCY_S,
    WITHIN_HOST_BIT_PER_S,
    WITHIN_HOST_LATENCY_S,
    network,
)
from hocket.errors import UsageError


@dataclass(frozen=True)
class Link:
    """Link from one rank to another: bandwidth of payload in bit/s, one-way latency in seconds."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Topology:
    """Host and rack of each rank, and the links between hosts.

    >>> two = Topology.even(world=4, racks=2, hosts_per_rack=1, link_bit_per_s=1e9, trunk_bit_per_s=1e8)
    >>> two.link(0, 1).bandwidth, two.link(0, 2).bandwidth
    (40000000000.0, 100000000.0)
    """

    hosts: tuple[str, ...]
    racks: tuple[str, ...]
    links: tuple[tuple[Link, ...], ...]
    """Links between ranks; row: source."""

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.hosts)

    def link(self, source: int, destination: int) -> Link:
        """Link from one rank to another."""
        return self.links[source][destination]

    def local_ranks(self, rank: int) -> tuple[int, ...]:
        """Ranks on the host of `rank`, including `rank`."""
        return self._by_host[self.hosts[rank]]

    def rack_ranks(self, rank: int) -> tuple[int, ...]:
        """Ranks in the rack of `rank`."""
        return self._by_rack[self.racks[rank]]

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """All ranks."""
        return tuple(range(self.world))

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each host."""
        return tuple(members[0] for members in self._by_host.values())

    @cached_property
    def rack_leaders(self) -> tuple[int, ...]:
        """The first rank of each rack."""
        return tuple(members[0] for members in self._by_rack.values())

    # Cached, since handlers of all ranks use them for every bucket.
    @cached_property
    def _by_host(self) -> dict[str, tuple[int, ...]]:
        return _members(self.hosts)

    @cached_property
    def _by_rack(self) -> dict[str, tuple[int, ...]]:
        return _members(self.racks)

    @classmethod
    def of(cls, hosts: Sequence[str], cluster: Cluster | None = None) -> Topology:
        """The topology of ranks on `hosts`; without a cluster every link between hosts is equally fast."""
        if cluster is None:
            return cls._joined(
                tuple(hosts), ("rack0",) * len(hosts), lambda _a, _b: Link(BIT_PER_S, LATENCY_S)
            )
        known = {host.name: at for at, host in enumerate(cluster.hosts)}
        unknown = next((host for host in hosts if host not in known), None)
        if unknown is not None:
            raise UsageError(
                f"rank {list(hosts).index(unknown)} is on host `{unknown}`, which the cluster does not have\n"
                f"hint: it has {', '.join(known)}; HOCKET_HOST gives a host the name that it has there"
            )
        between = network(cluster, [known[host] for host in hosts])
        ranks = {host: rank for rank, host in enumerate(hosts)}

        def link(a: str, b: str) -> Link:
            pair = (ranks[a], ranks[b])
            return Link(between.bit_per_s(*pair), between.path(*pair)[1])

        racks = tuple(cluster.hosts[known[host]].rack for host in hosts)
        return cls._joined(tuple(hosts), racks, link, link)

    @classmethod
    def even(
        cls,
        *,
        world: int,
        racks: int = 1,
        hosts_per_rack: int | None = None,
        link_bit_per_s: float = BIT_PER_S,
        trunk_bit_per_s: float | None = None,
    ) -> Topology:
        """Make a topology of `world` ranks over `racks` in blocks; without `hosts_per_rack` each rank has its own host."""
        if not 1 <= racks <= world:
            raise UsageError(f"{world} ranks in {racks} racks")
        rack = [rank * racks // world for rank in range(world)]
        hosts = []
        for rank in range(world):
            members = [each for each in range(world) if rack[each] == rack[rank]]
            count = hosts_per_rack or len(members)
            hosts.append(f"r{rack[rank]}h{members.index(rank) * count // len(members)}")
        names = tuple(f"rack{each}" for each in rack)
        trunk = link_bit_per_s if trunk_bit_per_s is None else trunk_bit_per_s
        rack_of = dict(zip(hosts, names, strict=True))
        return cls._joined(
            tuple(hosts),
            names,
            lambda a, b: Link(link_bit_per_s if rack_of[a] == rack_of[b] else trunk, LATENCY_S),
        )

    @classmethod
    def _joined(
        cls,
        hosts: tuple[str, ...],
        racks: tuple[str, ...],
        between: Callable[[str, str], Link],
        within: Callable[[str, str], Link] = lambda _a, _b: Link(
            WITHIN_HOST_BIT_PER_S, WITHIN_HOST_LATENCY_S
        ),
    ) -> Topology:
        known: dict[tuple[str, str], Link] = {}
        for a in dict.fromkeys(hosts):
            for b in dict.fromkeys(hosts):
                known[a, b] = within(a, b) if a == b else between(a, b)
        return cls(hosts, racks, tuple(tuple(known[a, b] for b in hosts) for a in hosts))


def _members(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Ranks with each name, by name, in the order of first appearance."""
    found: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        found.setdefault(name, []).append(rank)
    return {name: tuple(ranks) for name, ranks in found.items()}

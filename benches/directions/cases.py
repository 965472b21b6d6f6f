"""Clusters with one or two slow hosts, and the least time of an all-reduce among them, whatever the algorithm. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hocket.artefacts.cluster import Cluster, Directions, Host, both
from hocket.artefacts.network import GOODPUT
from hocket.artefacts.profile import Gradient, Profile

SHARES = (0.75, 0.5, 0.25, 0.1)
"""Rate of a slow host's slow direction over that of others."""

BITS = 8


@dataclass(frozen=True)
class Case:
    """A cluster, and a name for its row."""

    name: str
    cluster: Cluster

    @property
    def world(self) -> int:
        """Number of ranks, one a host."""
        return len(self.cluster.hosts)

    def bound_s(self, size_bytes: int) -> float:
        """Least seconds of an all-reduce of that size: of p hosts, all together send 2 (p - 1) times the size and receive as much;
        each sends its own values at least, and receives the sum (Chen et al., arXiv 2606.01680)."""
        size = BITS * size_bytes / GOODPUT
        least_s: list[float] = []
        for rates in zip(*(both(host.bandwidth_bit_per_s) for host in self.cluster.hosts), strict=True):
            least_s += [2 * (self.world - 1) * size / sum(rates), size / min(rates)]
        return max(least_s)


def slow_hosts(world: int, bit_per_s: float, share: float, slow: int, *, whole: bool = False) -> Case:
    """A case with its last hosts slow: the last one out, the one before in; `whole`: both directions of each."""
    slower = share * bit_per_s
    kinds: list[Directions] = [(slower, bit_per_s), (bit_per_s, slower)]
    own = [slower if whole else kinds[at] for at in range(slow)]
    rates = [bit_per_s] * (world - slow) + own[::-1]
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=rate) for at, rate in enumerate(rates))
    words = f"{slow} slow host{'s' * (slow > 1)}, {'both directions' if whole else 'one direction'}"
    return Case(f"p = {world}, b = {share:g}, {words}", Cluster(hosts=hosts))


def slow_cases(bit_per_s: float, worlds: tuple[int, ...] = (4, 8), *, whole: bool = False) -> Iterator[Case]:
    """All cases of some numbers of hosts."""
    for world in worlds:
        for share in SHARES:
            for slow in (1, 2):
                yield slow_hosts(world, bit_per_s, share, slow, whole=whole)


def homes() -> Case:
    """Three homes of 20 Mbit/s out and 100 in, 30 ms from one another, and a host of 1 Gbit/s."""
    home: Directions = (20e6, 100e6)
    hosts = [Host(name=f"home{at}", bandwidth_bit_per_s=home, latency_s=15e-3) for at in range(3)]
    return Case("three homes and a host", Cluster(hosts=(*hosts, Host(name="host", bandwidth_bit_per_s=1e9))))


def one_gradient(size_bytes: int, world: int) -> Profile:
    """A model of one gradient that is ready when the step begins."""
    gradient = Gradient(name="all", shape=(size_bytes // 4,), dtype="f32", ready_s=0.0, needed_s=0.0)
    return Profile(
        model="one gradient",
        world=world,
        steps=1,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        step_s=0.0,
        gradients=(gradient,),
    )

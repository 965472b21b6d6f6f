"""Hosts of equal links, of which the last one comes late, and the least time of an all-reduce among them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from msgspec.structs import replace

from benches.directions.cases import one_gradient
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.network import GOODPUT
from hocket.artefacts.profile import Profile, RankStep
from hocket.planning.late import bound_s

COMPUTED_S = 0.02
"""Time that the other ranks compute."""


@dataclass(frozen=True)
class Case:
    """An all-reduce of `size_bytes` among so many hosts. `of_ring`: how late the last one is, in times that a ring takes."""

    world: int
    bit_per_s: float
    size_bytes: int
    of_ring: float

    @property
    def cluster(self) -> Cluster:
        """Hosts of one rank each."""
        hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=self.bit_per_s) for at in range(self.world))
        return Cluster(hosts=hosts)

    @property
    def rank(self) -> int:
        """Rank that is late."""
        return self.world - 1

    @property
    def late_s(self) -> float:
        """Seconds by which it is late."""
        ring_s = 2 * (self.world - 1) / self.world * 8 * self.size_bytes / (GOODPUT * self.bit_per_s)
        return self.of_ring * ring_s

    @property
    def bound_s(self) -> float:
        """Least seconds from the others' begin to the end."""
        rate = GOODPUT * self.bit_per_s
        return bound_s(self.size_bytes, [(rate, rate)] * self.world, self.rank, self.late_s)

    @property
    def profile(self) -> Profile:
        """Model of one gradient, which the late rank has so much later."""
        steps_s = [COMPUTED_S] * (self.world - 1) + [COMPUTED_S + self.late_s]
        mean_s = fmean(steps_s)
        plain = one_gradient(self.size_bytes, self.world)
        (gradient,) = plain.gradients
        return replace(
            plain,
            backward_s=mean_s,
            step_s=mean_s,
            gradients=(replace(gradient, ready_s=mean_s),),
            ranks=tuple(RankStep(step_s=each) for each in steps_s),
        )

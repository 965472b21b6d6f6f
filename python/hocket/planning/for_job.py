"""Plans and predictions for the ranks of a job, whatever the order of its hosts in the cluster file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import raised
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning import search
from hocket.planning.cost import Prediction, predict
from hocket.planning.default import of_job, on_ranks
from hocket.planning.links import link_graph
from hocket.planning.reordered import in_fastest_orders


@dataclass(frozen=True)
class ForJob:
    """A job on a cluster. Planners number places in the order of the cluster's slots; `ranks[place]` is the job's rank there."""

    cluster: Cluster
    ranks: tuple[int, ...]

    @classmethod
    def of(cls, cluster: Cluster, hosts: Sequence[str]) -> ForJob:
        """`hosts[rank]`: the host of each rank. UsageError: the cluster lacks one of them."""
        return cls(*of_job(cluster, hosts))

    def plan(self, profile: Profile, promise: Promise) -> Plan:
        """The fastest plan that the search finds, for the job's ranks."""
        return _renamed(search.plan(self.cluster, profile, len(self.ranks), promise=promise), self.ranks)

    def reordered(self, plan: Plan, profile: Profile) -> Plan:
        """A plan for the job's ranks, with nothing but their orders changed, to the fastest ones that are found."""
        return _renamed(in_fastest_orders(_renamed(plan, self._places), self.cluster, profile), self.ranks)

    def predicted_s(self, plan: Plan, profile: Profile) -> float:
        """Predicted seconds of a step with a plan for the job's ranks."""
        return self._predicted(plan, profile).step_s

    def at_least(self, plan: Plan, profile: Profile, step_s: float) -> ForJob:
        """The same job with the rates of links raised to what a measured step proves: with `plan` a step took `step_s`, so each
        link carried its bytes in the time after backward had begun."""
        window_s = step_s - profile.optimizer_s - profile.forward_s
        if window_s <= 0:
            return self
        loads = self._predicted(plan, profile).loads
        least = {load.link: load.busy_s * load.bit_per_s / window_s for load in loads}
        return ForJob(raised(self.cluster, least), self.ranks)

    def carrying(self, least_bit_per_s: Mapping[tuple[int, int], float]) -> ForJob:
        """The same on links that are no slower than what one rank of the job has sent to another over them, in payload."""
        graph, places = link_graph(self.cluster, len(self.ranks)), self._places
        least: dict[str, float] = {}
        for (source, destination), rate in least_bit_per_s.items():
            for link in graph.paths[places[source], places[destination]]:
                name = graph.links[link].name
                least[name] = max(least.get(name, 0.0), rate)
        return ForJob(raised(self.cluster, least), self.ranks)

    @property
    def _places(self) -> tuple[int, ...]:
        """By rank."""
        return tuple(self.ranks.index(rank) for rank in range(len(self.ranks)))

    def _predicted(self, plan: Plan, profile: Profile) -> Prediction:
        return predict(_renamed(plan, self._places), self.cluster, profile)


def _renamed(plan: Plan, names: Sequence[int]) -> Plan:
    """The same plan with rank `names[r]` in place of rank r."""
    buckets = tuple(
        msgspec.structs.replace(
            bucket,
            route=on_ranks(bucket.route, names),
            order=tuple(names[rank] for rank in bucket.order),
            codec_links=tuple(sorted((names[a], names[b]) for a, b in bucket.codec_links)),
        )
        for bucket in plan.buckets
    )
    return msgspec.structs.replace(plan, buckets=buckets)

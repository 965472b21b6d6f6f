"""Plans for the ranks of a job, wherever their hosts stand in the cluster: what `hocket plan` would choose, and what a plan is
predicted to take."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True)
class ForJob:
    """A job on a cluster. Planners place ranks in the order of the cluster's slots; `ranks[place]` is the job's."""

    cluster: Cluster
    ranks: tuple[int, ...]

    @classmethod
    def of(cls, cluster: Cluster, hosts: Sequence[str]) -> ForJob:
        """`hosts[rank]`: each rank's. UsageError: the cluster does not have one of them."""
        return cls(*of_job(cluster, hosts))

    def plan(self, profile: Profile, promise: Promise) -> Plan:
        """The fastest that is found, for the job's ranks."""
        return _renamed(search.plan(self.cluster, profile, len(self.ranks), promise=promise), self.ranks)

    def predicted_s(self, plan: Plan, profile: Profile) -> float:
        """What a step takes with a plan for the job's ranks."""
        return self._predicted(plan, profile).step_s

    def at_least(self, plan: Plan, profile: Profile, step_s: float) -> ForJob:
        """The same on links that are no slower than they must be: `plan` took `step_s` a step, and what a link carried in it came
        through after backward had begun."""
        window_s = step_s - profile.optimizer_s - profile.forward_s
        if window_s <= 0:
            return self
        loads = self._predicted(plan, profile).loads
        least = {load.link: load.busy_s * load.bit_per_s / window_s for load in loads}
        return ForJob(raised(self.cluster, least), self.ranks)

    def _predicted(self, plan: Plan, profile: Profile) -> Prediction:
        places = tuple(self.ranks.index(rank) for rank in range(len(self.ranks)))
        return predict(_renamed(plan, places), self.cluster, profile)


def _renamed(plan: Plan, names: Sequence[int]) -> Plan:
    """The same plan, rank `names[r]` in the place of rank r."""
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

"""Plans and predictions for the ranks of a job, whatever the order of its hosts in the cluster file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import raised
from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning import delays, schedules, search
from hocket.planning.cost import Prediction, predict
from hocket.planning.default import of_job, on_ranks
from hocket.planning.links import link_graph
from hocket.planning.reordered import in_fastest_orders
from hocket.settings import Guard


@dataclass(frozen=True)
class ForJob:
    """A job on a cluster. Planners number places by the cluster's slots; `ranks[place]` is the job's rank at a place."""

    cluster: Cluster
    ranks: tuple[int, ...]

    @classmethod
    def of(cls, cluster: Cluster, hosts: Sequence[str]) -> ForJob:
        """Make a job from the host of each rank, `hosts[rank]`. UsageError if the cluster lacks one of them."""
        return cls(*of_job(cluster, hosts))

    def plan(self, profile: Profile, promise: Promise, guard: Guard = "full") -> Plan:
        """The fastest plan that the search finds, for the job's ranks, with the fastest schedule that the promise allows and the
        guard accepts."""
        found = search.considered(self.cluster, profile, len(self.ranks), promise=promise)
        plan = found.explained(found.best)
        graph = found.question.graph
        # A job that changes its plan has no policies.
        return self.renamed(delays.scheduled(plan, graph, profile, promise, guard=guard, codecs=False))

    def renamed(self, plan: Plan) -> Plan:
        """Translate a planner's plan to the job's ranks."""
        return _renamed(plan, self.ranks)

    def placed(self, plan: Plan) -> Plan:
        """Translate a plan for the job's ranks to the planners' numbers."""
        return _renamed(plan, self._places)

    def reordered(self, plan: Plan, profile: Profile) -> Plan:
        """Return the plan with only its orders changed, to the fastest that are found."""
        return self.renamed(in_fastest_orders(self.placed(plan), self.cluster, profile))

    def predicted_s(self, plan: Plan, profile: Profile) -> float:
        """Predicted seconds of a step with a plan for the job's ranks; the mean over steps if its schedule has turns."""
        if not plan.schedule.turns:
            return self._predicted(plan, profile).step_s
        graph = link_graph(self.cluster, len(self.ranks))
        return schedules.steady(self.placed(plan), graph, profile).iteration_s

    def at_least(self, plan: Plan, profile: Profile, step_s: float) -> ForJob:
        """Return the job with links' rates raised to those that a measured step proves: with `plan` a step took `step_s`, so each
        link carried its bytes in the time after backward began, or in the whole step if the schedule has turns."""
        window_s = step_s if plan.schedule.turns else step_s - profile.optimizer_s - profile.forward_s
        if window_s <= 0:
            return self
        least: dict[str, float] = {}
        for bucket, per_step in zip(plan.buckets, updates_per_step(plan), strict=True):
            alone = msgspec.structs.replace(plan, buckets=(bucket,), schedule=Schedule(), safer=())
            for load in self._predicted(alone, profile).loads:
                carried_bit = per_step * load.busy_s * load.bit_per_s
                least[load.link] = least.get(load.link, 0.0) + carried_bit / window_s
        return ForJob(raised(self.cluster, least), self.ranks)

    def carrying(self, least_bit_per_s: Mapping[tuple[int, int], float]) -> ForJob:
        """Return the job with links no slower than the payload rates measured from one rank to another over them."""
        graph, places = link_graph(self.cluster, len(self.ranks)), self._places
        least: dict[str, float] = {}
        for (source, destination), rate in least_bit_per_s.items():
            for link in graph.path(places[source], places[destination])[0]:
                name = graph.links[link].name
                least[name] = max(least.get(name, 0.0), rate)
        return ForJob(raised(self.cluster, least), self.ranks)

    @property
    def _places(self) -> tuple[int, ...]:
        """Place of each rank."""
        return tuple(self.ranks.index(rank) for rank in range(len(self.ranks)))

    def _predicted(self, plan: Plan, profile: Profile) -> Prediction:
        return predict(self.placed(plan), self.cluster, profile)


def updates_per_step(plan: Plan) -> list[float]:
    """Updates of each bucket per step.

    >>> from hocket.planning.buckets import plan_of
    >>> updates_per_step(plan_of([], 2, label="empty"))
    []
    """
    schedule = plan.schedule
    return [len(turns) / schedule.period for turns in schedule.turns] or [1.0] * len(plan.buckets)


def _renamed(plan: Plan, names: Sequence[int]) -> Plan:
    """Replace rank r by `names[r]` in a plan."""
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

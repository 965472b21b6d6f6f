"""Source of programs in an elastic job: the buckets of a plan, and programs that its policies make of them for the present ranks.

Members that go on after a loss keep the buckets, since these hold the gradients that are reduced again. Policies are traced for
them, and are told which ranks are gone. Each rank does so by itself: nobody waits for a rank that may be the next one to be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local, localized
from hocket.artefacts.plan import Plan, Traced
from hocket.job.rendezvous import Job
from hocket.members.members_store import Among
from hocket.planning.seconds import apart
from hocket.policy.epoch import Epoch, Epochs
from hocket.policy.policy import Value
from hocket.policy.topology import Topology
from hocket.training.beside.beside import Beside
from hocket.training.beside.timer import Timer
from hocket.training.elastic.plans import with_barrier
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.arenas import arranged
from hocket.training.memory.buckets import CompiledBucket
from hocket.training.memory.runnable import check_runs
from hocket.training.memory.scopes import Scope, initial
from hocket.training.prepared import Stay
from hocket.training.programs.source import ProgramSource
from hocket.training.programs.traced import TracedBuckets

Begin = tuple[int, Mapping[str, Value]]
"""Number of the epoch in force, and its agreed values."""


def members_source(
    plan: Plan | None,
    scopes: Sequence[Scope],
    gradients: Mapping[str, Gradient],
    *,
    process: Stay,
    begin: Begin | None,
    local: Local | None = None,
) -> ProgramSource:
    """Return the source of all ranks that have just met. `plan`: None where the one policy of `scopes` decides what travels
    together. `begin`: epoch that the job is in; None: at its start. `local`: how ranks step alone in the policy's plan.

    Raises ArtefactError: the plan is not sound, or for another model. PolicyError: a policy is refused. UsageError: the plan has
    parts that sessions do not run.
    """
    if plan is not None:
        check_runs(plan, gradients)
        plan = apart(plan, process.job.hosts)
    number, agreed = begin or (0, initial(scopes))
    return Sources(plan is None, scopes, gradients, process, local).of(
        plan, process.job, Epoch(number, agreed), members=0, before=None
    )


class Sources:
    """State that stays the same while members come and go."""

    def __init__(
        self,
        whole: bool,
        scopes: Sequence[Scope],
        gradients: Mapping[str, Gradient],
        process: Stay,
        local: Local | None = None,
    ) -> None:
        """Keep the state. `whole`: the policy makes the plan, too, by which ranks step alone as `local` says."""
        self._whole, self._scopes, self._gradients, self._process = whole, scopes, gradients, process
        self._local = local

    def of(
        self, plan: Plan | None, job: Job, first: Epoch, *, members: int, before: Timer | None
    ) -> ProgramSource:
        """Return the source of an epoch of members; 0: the epoch of all that have met."""
        process, scopes, gradients = self._process, self._scopes, self._gradients
        epochs = Epochs(first)
        whole = self._whole and (plan is None or any(isinstance(each.route, Traced) for each in plan.buckets))
        traced, timer = None, None
        if scopes:
            topology = Topology.of(job.hosts, _known(process.measurements.cluster, job.hosts))
            traced = TracedBuckets(
                scopes,
                gradients,
                job=job,
                topology=topology,
                tuning=process.measurements.tuning,
                agrees=lambda epoch: not members and epoch is first,
            )
            timer = Timer(
                scopes,
                Beside(job, process.abort, Among(process.generation, members, process.everyone)),
                topology=topology,
                epochs=epochs,
                guards=lambda: traced.guards,
                before=before,
            )

        def current(epoch: Epoch) -> Plan:
            if plan is not None and (epoch is first or not whole):
                return arranged(with_barrier(plan), gradients)
            assert traced is not None  # noqa: S101  # without a plan there is a policy
            made = with_barrier(traced.plan(scopes[0], epoch))
            return made if self._local is None else localized(made, self._local)

        def make(epoch: Epoch) -> list[CompiledBucket]:
            now = current(epoch)
            ready = {} if traced is None else traced.programs(now, epoch)
            return bucket_memory.of_plan(now, gradients, ready, job=job)

        def following(kept: Plan, others: Job, number: int) -> ProgramSource:
            return self.of(kept, others, epochs.current, members=number, before=timer)

        return ProgramSource(
            epochs,
            make,
            current,
            policies=tuple(scope.policy for scope in scopes),
            timer=timer,
            following=following,
        )


def _known(cluster: Cluster | None, hosts: Sequence[str]) -> Cluster | None:
    """Return the cluster, unless one of the hosts joined later and is not in it."""
    if cluster is None or not set(hosts) <= {each.name for each in cluster.hosts}:
        return None
    return cluster

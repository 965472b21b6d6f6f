"""Knowledge of rank 0 about network and model, and the planner's answers from it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hocket.artefacts.belief import Belief
from hocket.artefacts.cluster import Cluster, Directions, both
from hocket.artefacts.experience import Experience, Job, Trial
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.lines import append
from hocket.artefacts.network import network, restricted
from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.artefacts.trace import experience_file
from hocket.artefacts.tuning import Tuning
from hocket.job import rendezvous
from hocket.job.known.knowledge import Kind, Memory
from hocket.job.trace_writes import TraceWrites
from hocket.measure.by_traffic import rescaled
from hocket.planning.admission import walk_of
from hocket.planning.asked import Asked
from hocket.planning.for_job import ForJob
from hocket.planning.ordering.classes import among_workers, with_orders_of
from hocket.planning.question import Question, question_of
from hocket.planning.transfer import transferred
from hocket.planning.trials import Trials
from hocket.settings import Guard
from hocket.training.autopilot.searching import Proposer, Searching, trial_of
from hocket.training.autopilot.stopwatch import Times, profile_of

log = logging.getLogger("hocket.autopilot")

TRIALS_MAX = 64
"""Number of trials that are kept of a job."""

CHANGED = 1.25
"""Ratio of rates beyond which a path, either way, is another path: without a change, looks differ by less."""


def trials(question: Question, incumbent: Plan, prior: Belief) -> Proposer:
    """Return the default proposer of candidates."""
    return Trials(question, incumbent, prior=prior)


@dataclass
class Knowledge:
    """Knowledge about a job. `cluster` is None if nobody measured; `given` is the user's plan, of which only orders of ranks may
    change; `memory` keeps this knowledge for the next job; `times` are ranks' parts of the model's profile; `guard`: the check that
    merged and late gradients must pass."""

    hosts: Sequence[str]
    gradients: Sequence[Gradient]
    cluster: Cluster | None
    promise: Promise
    given: Plan | None = None
    memory: Memory | None = None
    times: dict[int, Times] = field(default_factory=dict)
    search_s: float | None = None
    """Seconds that a search may still take; None: there is no search, or it has ended."""
    builders: Sequence[Asked] = ()
    """Users' builders whose plans a search tries, too."""
    proposer: Callable[[Question, Plan, Belief], Proposer] = trials
    tried: list[Trial] = field(default_factory=list)
    """Results of this job's trials."""
    guard: Guard = "full"
    check: Callable[[Plan], None] | None = None
    """Check that raises UsageError for plans that this job cannot have."""
    drives: bool = True
    """False: the plan changes as a search or HOCKET_REORDER asks, and for no other reason."""
    _profile: Profile | None = None
    _retreated: bool = False
    _writes: TraceWrites = field(default_factory=lambda: TraceWrites("what trials have shown"))

    def among(self, job: rendezvous.Job, kept: Plan) -> Knowledge:
        """Return the part that still holds for the remaining ranks of an elastic job, which go on with this plan. Each has its
        own part of the profile."""
        return Knowledge(
            hosts=job.hosts,
            gradients=self.gradients,
            cluster=None if self.cluster is None else among(self.cluster, job.hosts),
            promise=self.promise,
            given=None if self.given is None else kept,
            memory=None if self.memory is None else self.memory.among(job),
            search_s=self.search_s,
            builders=self.builders,
            guard=self.guard,
            check=self.check,
            drives=self.drives,
        )

    @property
    def asked(self) -> bool:
        """True if a search, or HOCKET_REORDER, asks for other plans."""
        return self.given is not None or self.search_s is not None

    @property
    def delays(self) -> bool:
        """True if gradients may be merged or late: the promise allows it, and none travels as rows."""
        sparse = any(each.sparse for each in self.gradients)
        return self.given is None and self.promise.turns and not sparse

    def retreat(self) -> None:
        """Propose no more merged or late gradients, since they went wrong."""
        if self.delays:
            self.promise = self.promise.without_turns()
            self._retreated = True

    def searching(self, current: Plan) -> Searching:
        """Return a search that begins with the plan in force, on the network as known, and with results of other jobs. The planner
        was asked before."""
        assert self.search_s is not None  # noqa: S101  # who asks knows that there is a search
        job, profile = self._known()
        question = question_of(
            job.cluster, profile, len(self.hosts), self.promise, None, builders=self.builders
        )
        experiences = [] if self.memory is None else self.memory.experiences()
        found = transferred(experiences, job.cluster, question, self.promise)
        for why in found.refused:
            log.info("a plan of another job is no candidate: %s", why)
        proposer = self.proposer(question, job.placed(current), found.belief)
        return Searching(job, proposer, self.search_s, first=found.plans)

    def trial(self, plan: Plan, measured_s: float, error_s: float) -> Trial:
        """Return the trial of a plan for the job's ranks."""
        job, _ = self._known()
        return trial_of(job.placed(plan), measured_s, error_s)

    def take_down(self, trial: Trial, trace: Path | None) -> None:
        """Record a trial for other jobs: in the user's cache, and in the directory of the trace."""
        job, profile = self._known()
        header = Job(cluster=job.cluster, profile=profile, promise=self.promise.word)
        if trace is not None:
            path = experience_file(trace)
            if not self.tried:
                self._writes(lambda: append(path, header))
            self._writes(lambda: append(path, trial))
        self.tried.append(trial)
        if self.memory is not None:
            found = Experience(job=header, trials=tuple(self.tried[-TRIALS_MAX:]))
            self.memory.learn(self.gradients, self.promise, found)

    def _known(self) -> tuple[ForJob, Profile]:
        assert self.cluster is not None and self._profile is not None  # noqa: S101, PT018  # the planner was asked before
        return ForJob.of(self.cluster, self.hosts), self._profile

    def proposal(
        self, current: Plan, step_s: float, least_bit_per_s: Mapping[tuple[int, int], float]
    ) -> tuple[Plan, float]:
        """Return the planner's best plan, and its prediction for `current`, with which a step took `step_s` of late, while paths
        between ranks carried at least `least_bit_per_s`.

        A look beside training shares links with it, and finds them slower than they are; traffic of training itself corrects that.
        UsageError: the cluster has other hosts.
        """
        assert self.cluster is not None  # noqa: S101  # the pilot looks before it asks
        profile = profile_of(list(self.times.values()), self.gradients, "in training", len(self.hosts))
        self._profile = profile
        if self._retreated:
            # The session goes on with this plan's buckets, but not with its turns.
            current = msgspec.structs.replace(current, schedule=Schedule(), safer=())
        if self.given is not None:
            current = among_workers(current)
        job = ForJob.of(self.cluster, self.hosts).carrying(least_bit_per_s).at_least(current, profile, step_s)
        self.cluster = job.cluster
        if self.given is None:
            best = job.plan(profile, self._kept(profile), self.guard)
        else:
            best = with_orders_of(self.given, job.reordered(among_workers(self.given), profile))
        return best, job.predicted_s(current, profile)

    def _kept(self, profile: Profile) -> Promise:
        """Return the promise, but without merged or late gradients while DeFT's own guard lacks the terms of its ratio."""
        if self.guard == "paper" and self.delays and walk_of(profile.learning) is None:
            return self.promise.without_turns()
        return self.promise

    def shown_by(self, ratios: Mapping[tuple[int, int], float]) -> Cluster | None:
        """Return the cluster as changed rates of the job's own flows explain it; None: nobody has looked, or they do not."""
        return None if self.cluster is None else rescaled(self.cluster, self.hosts, ratios)

    def keep(self, plan: Plan) -> None:
        """Keep this knowledge, and a plan that has proved itself, for the next job on these hosts."""
        if self.memory is None or self.cluster is None or self._profile is None:
            return
        parts: dict[Kind, Cluster | Profile | Tuning | Plan] = {
            "cluster": self.cluster,
            "profile": self._profile,
            "plan": plan,
        }
        self.memory.keep(self.gradients, self.promise, parts)


def differs(before: Cluster, after: Cluster) -> bool:
    """Return whether a path between two hosts is faster or slower than it was.

    >>> from hocket.artefacts.cluster import Host
    >>> clusters = [Cluster(hosts=tuple(Host(name=n, bandwidth_bit_per_s=r) for n in "ab")) for r in (1e9, 9e8, 5e8)]
    >>> differs(clusters[0], clusters[1]), differs(clusters[0], clusters[2])
    (False, True)
    """
    if {host.name for host in before.hosts} != {host.name for host in after.hosts}:
        return True
    was, now = _rates(before), _rates(after)
    return any(not 1 / CHANGED <= now[pair] / was[pair] <= CHANGED for pair in now)


def among(cluster: Cluster, hosts: Sequence[str]) -> Cluster:
    """Return the cluster of these ranks' hosts, which are in it.

    >>> from hocket.artefacts.cluster import Host
    >>> cluster = Cluster(hosts=tuple(Host(name=name, slots=2, bandwidth_bit_per_s=1e9) for name in "abc"))
    >>> [(host.name, host.slots) for host in among(cluster, "aac").hosts]
    [('a', 2), ('c', 1)]
    """
    left = restricted(cluster, [at for at, host in enumerate(cluster.hosts) if host.name in hosts])
    slots = Counter(hosts)
    return msgspec.structs.replace(
        left, hosts=tuple(msgspec.structs.replace(each, slots=slots[each.name]) for each in left.hosts)
    )


def described(cluster: Cluster) -> str:
    """Return a short description of the cluster for people.

    >>> from hocket.artefacts.cluster import Host, Rack
    >>> hosts = tuple(Host(name=f"h{i}", rack="ab"[i % 2], bandwidth_bit_per_s=1e9) for i in range(4))
    >>> described(Cluster(hosts=hosts, racks=tuple(Rack(name=n, uplink_bit_per_s=1e8) for n in "ab")))
    '4 hosts in 2 racks, 1000 Mbit/s a host, trunks of 100 Mbit/s'
    """
    racks = Counter(host.rack for host in cluster.hosts)
    text = f"{len(cluster.hosts)} hosts"
    if len(racks) > 1:
        text += f" in {len(racks)} racks"
    text += f", {_megabits(host.bandwidth_bit_per_s for host in cluster.hosts)} a host"
    trunks = [rack.uplink_bit_per_s for rack in cluster.racks if rack.uplink_bit_per_s is not None]
    return f"{text}, trunks of {_megabits(trunks)}" if trunks and len(racks) > 1 else text


def _megabits(rates_bit_per_s: Iterable[Directions]) -> str:
    rates = sorted(rate / 1e6 for each in rates_bit_per_s for rate in both(each))
    low, high = f"{rates[0]:.0f}", f"{rates[-1]:.0f}"
    return f"{low} Mbit/s" if low == high else f"{low} to {high} Mbit/s"


def _rates(cluster: Cluster) -> dict[tuple[str, str], float]:
    found = network(cluster)
    names = [host.name for host in cluster.hosts]
    pairs = ((a, b) for a in range(len(names)) for b in range(len(names)) if a != b)
    return {(names[a], names[b]): found.bit_per_s(a, b) for a, b in pairs}

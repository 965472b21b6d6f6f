"""Source of a model's programs, epoch by epoch: a plan, whose orders may change and whose policies are traced again.

A whole-model policy is a plan whose buckets all use it. A given plan stays as it is. Default plans and whole-model policies follow
the order in which the first backward makes gradients on rank 0: if it leads to other buckets, an epoch with these begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local, localized
from hocket.artefacts.plan import Plan
from hocket.errors import PeerError
from hocket.job.rendezvous import Job
from hocket.parameter_server.plan import in_step
from hocket.policy.epoch import Epoch, Epochs
from hocket.policy.policy import Policy, Value
from hocket.policy.trace import is_plain
from hocket.training.autopilot.autopilot import Autopilot
from hocket.training.beside.beside import Duty
from hocket.training.beside.timer import Timer
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.arenas import arranged
from hocket.training.memory.buckets import CompiledBucket, Launch, LoadedBucket
from hocket.training.memory.runnable import check_runs
from hocket.training.memory.scopes import Scope, initial
from hocket.training.programs.traced import TracedBuckets
from hocket.training.servers.helping import Helpers
from hocket.training.servers.served import ServedBuckets


@dataclass
class ProgramSource:
    """Programs of the current epoch, and duties beside training: `timer` for policies, `autopilot` for plans that change; `served`
    if parameter servers hold buckets, `helpers` if ranks that do not train own some. `following`: if ranks may be lost, the source
    of the remaining ranks, which keep a plan's buckets in an epoch of members."""

    epochs: Epochs
    make: Callable[[Epoch], list[CompiledBucket]]
    plan: Callable[[Epoch], Plan]
    layout: Callable[[tuple[str, ...]], object] = tuple
    """Buckets that an order of backward leads to, for comparison."""
    policies: tuple[Policy, ...] = ()
    timer: Timer | None = None
    autopilot: Autopilot | None = None
    served: ServedBuckets | None = None
    helpers: Helpers | None = None
    following: Callable[[Plan, Job, int], ProgramSource] | None = None
    ready: list[CompiledBucket] | None = None
    """Buckets and programs of the current epoch that were made before they are asked for, if any."""

    @property
    def in_step(self) -> bool:
        """True if ranks wait for one another in each iteration."""
        return self.served is None or in_step(self.plan(self.epochs.current))

    @property
    def gates(self) -> bool:
        """True if each layer waits only for its own buckets."""
        return self.plan(self.epochs.current).schedule.overlap == "gates"

    def buckets(self) -> list[CompiledBucket]:
        """Return buckets and programs of the current epoch; equal on all ranks."""
        ready, self.ready = self.ready, None
        return self.make(self.epochs.current) if ready is None else ready

    def agreed(self) -> dict[str, Value]:
        """Return the current epoch's agreed values, and its number as `epoch`."""
        current = self.epochs.current
        return {**current.agreed, "epoch": current.number}

    @property
    def observes(self) -> bool:
        """True if the order of gradients is not known yet."""
        return self.epochs.observes

    def observed(self, backward: tuple[str, ...]) -> None:
        """Take the order of rank 0's gradients; called on every rank after the same step."""
        assumed = self.epochs.current.backward
        self.epochs.observed(None if self.layout(backward) == self.layout(assumed) else backward)

    def decide(self, smallest_vote: int) -> bool:
        """Return whether an epoch begins now."""
        return self.epochs.decide(smallest_vote) is not None

    @property
    def duties(self) -> list[Duty]:
        """Duties of the thread beside training."""
        return [each for each in (self.timer, self.autopilot) if each is not None]

    def start_timer(self, added: Iterable[int] | None = None) -> None:
        """Start the thread beside training. The timer is dropped if no policy needs it: then no statistics are kept. `added`: the
        workers that are new to this rank; None: all."""
        if self.timer is not None and not self.timer.needed:
            self.timer = None
        if duties := self.duties:
            duties[0].beside.start(duties, added)

    def stop(self, *, retires: bool = False) -> None:
        """Stop the thread beside training; `retires`: in the middle of the job."""
        for each in self.duties[:1]:
            each.beside.stop(retires=retires)

    def loaded(
        self, plan: Plan, buckets: Sequence[LoadedBucket], launches: Sequence[Launch], *, first: bool
    ) -> None:
        """Tell ranks that do not train of the buckets of this epoch's plan, which are loaded. `first`: there were none before."""
        if first and self.served is not None:
            self.served.start(buckets)
        if self.helpers is not None:
            lengths = {
                each.number: [stop - start for start, stop in each.runs]
                for each in launches
                if each.compiled.helped
            }
            self.helpers.loaded(plan, lengths, self.epochs.current.number)

    def backward_began(self, iteration: int) -> None:
        """Tell ranks that do not train that backward begins."""
        if self.served is not None:
            self.served.begin(iteration)
        if self.helpers is not None:
            self.helpers.begin(self.epochs.current.number)

    def leave(self) -> None:
        """Tell ranks that do not train that this one has finished. A job that has failed was reported already."""
        for part in (self.served, self.helpers):
            if part is not None:
                with contextlib.suppress(PeerError):
                    part.leave()

    def retire(self) -> None:
        """Stop this thread in the middle of the job."""
        self.stop(retires=True)

    def dismiss(self) -> None:
        """Let ranks that do not train end this training, in the middle of the job."""
        for part in (self.served, self.helpers):
            if part is not None:
                part.dismiss()

    def record(self, name: str, value: float) -> None:
        """Record a statistic if a timer can use it."""
        if self.timer is not None:
            self.timer.statistics.record(name, value)


Loaded = Callable[[ProgramSource, Sequence[LoadedBucket]], None]
"""Callback that is told of the programs of each epoch of a source."""

Planned = Callable[[Sequence[str]], Plan]
"""Function that makes a default plan from the names of gradients in the order of backward."""


def planned_of(planned: Planned, epoch: Epoch, gradients: Mapping[str, Gradient]) -> Plan:
    """Return the default plan of an epoch: for the observed order of backward, else for the reverse of registration."""
    return planned(epoch.backward or bucket_memory.assumed_backward(gradients))


def of_plan(
    plan: Plan | Planned,
    gradients: Mapping[str, Gradient],
    *,
    job: Job,
    traced: TracedBuckets | None = None,
    timer: Callable[[Epochs], Timer] | None = None,
    served: ServedBuckets | None = None,
    helpers: Helpers | None = None,
    observes: bool = True,
) -> ProgramSource:
    """Return the source of a plan: one endless epoch for a given plan; for a default plan one more when backward's order is seen;
    with a `timer`, one for agreed values of policies. `traced`: buckets with policies; `served`: buckets that parameter servers
    hold; `helpers`: ranks that do not train and own parts of others. `observes`: whether backward's order is looked at.

    Raises ArtefactError: the plan is not sound, or for another model. UsageError: it has parts that sessions do not run.
    """
    if isinstance(plan, Plan):
        check_runs(plan, gradients)

    def current(epoch: Epoch) -> Plan:
        made = plan if isinstance(plan, Plan) else planned_of(plan, epoch, gradients)
        return arranged(made, gradients)

    def make(epoch: Epoch) -> list[CompiledBucket]:
        now = current(epoch)
        ready = {} if traced is None else traced.programs(now, epoch)
        if served is not None:
            ready |= served.programs()
        return bucket_memory.of_plan(now, gradients, ready, job=job)

    def layout(backward: tuple[str, ...]) -> object:
        return _contents(current(Epoch(0, backward=backward)))

    scopes = [] if traced is None else list(traced.scopes.values())
    epochs = Epochs(Epoch(0, initial(scopes)), observes=observes and not isinstance(plan, Plan))
    policies = tuple(scope.policy for scope in scopes)
    beside = None if timer is None else timer(epochs)
    return ProgramSource(epochs, make, current, layout, policies, beside, served=served, helpers=helpers)


def driven(
    autopilot: Autopilot,
    planned: Planned,
    gradients: Mapping[str, Gradient],
    job: Job,
    *,
    served: ServedBuckets | None = None,
    helpers: Helpers | None = None,
) -> ProgramSource:
    """Return the source of a plan that the job's own measurements may replace: an epoch for backward's order, if the plan is a
    default one, and one for each plan. `served`, `helpers`: see `of_plan`."""

    def make(epoch: Epoch) -> list[CompiledBucket]:
        made = autopilot.programs(epoch)
        if made is not None:
            return made
        ready = {} if served is None else served.programs()
        return bucket_memory.of_plan(autopilot.plan(epoch), gradients, ready, job=job)

    def layout(backward: tuple[str, ...]) -> object:
        return _contents(planned(backward))

    return ProgramSource(
        autopilot.epochs,
        make,
        autopilot.plan,
        layout,
        autopilot=autopilot,
        served=served,
        helpers=helpers,
    )


def of_policy(
    scope: Scope,
    gradients: Mapping[str, Gradient],
    *,
    traced: TracedBuckets,
    timer: Callable[[Epochs], Timer],
    local: Local | None = None,
) -> ProgramSource:
    """Return the source of a policy that also decides which gradients travel, and which together. All ranks trace it for all ranks.
    `local`: ranks step alone, and what travels by the policy is how far they came.

    PolicyError when the result is not the same everywhere.
    """
    policy = scope.policy

    def current(epoch: Epoch) -> Plan:
        made = traced.plan(scope, epoch)
        return made if local is None else localized(made, local)

    def make(epoch: Epoch) -> list[CompiledBucket]:
        now = current(epoch)
        return bucket_memory.of_plan(now, gradients, traced.programs(now, epoch))

    def layout(backward: tuple[str, ...]) -> object:
        made = current(Epoch(0, epochs.current.agreed, backward=backward)).buckets
        if is_plain(policy):
            return [(frozenset(bucket.variables), bucket.priority) for bucket in made]
        # A policy with such a handler may look at the orders themselves.
        return made, backward

    epochs = Epochs(Epoch(0, initial([scope])), observes=local is None)
    return ProgramSource(epochs, make, current, layout, (policy,), timer(epochs))


def _contents(plan: Plan) -> list[frozenset[str]]:
    return [frozenset(bucket.variables) for bucket in plan.buckets]

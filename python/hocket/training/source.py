"""Where a model's programs come from, epoch by epoch: a plan, whose orders may change, and whose policies are traced again.

A whole-model policy is a plan whose buckets all go by it. A plan that was given stays as it is. Where none was, and with
whole-model policies, the first backward shows in which order gradients really come; where that makes other buckets, an epoch
with these begins. The order is rank 0's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.planning.ordering.classes import reordered
from hocket.policy.epoch import Epoch, Epochs
from hocket.policy.policy import Policy, Value
from hocket.training import buckets as bucket_memory
from hocket.training.arenas import arranged
from hocket.training.autopilot.beside import Autopilot
from hocket.training.buckets import CompiledBucket
from hocket.training.reorder import ORDER, Reorder, decode
from hocket.training.scopes import Scope
from hocket.training.timer import Timer
from hocket.training.traced import TracedBuckets


@dataclass
class ProgramSource:
    """`buckets` gives those of the current epoch; `timer` is there for policies alone, `reorder` for plans, `autopilot` for default
    plans."""

    epochs: Epochs
    make: Callable[[Epoch], list[CompiledBucket]]
    plan: Callable[[Epoch], Plan]
    layout: Callable[[tuple[str, ...]], object] = tuple
    """What an order of backward comes to: where it is equal, another order changes nothing."""
    policies: tuple[Policy, ...] = ()
    timer: Timer | None = None
    reorder: Reorder | None = None
    autopilot: Autopilot | None = None

    @property
    def gates(self) -> bool:
        """Whether layers wait for their own buckets alone."""
        return self.plan(self.epochs.current).schedule.overlap == "gates"

    def buckets(self) -> list[CompiledBucket]:
        """Buckets and programs of the current epoch, the same on all ranks."""
        return self.make(self.epochs.current)

    def agreed(self) -> dict[str, Value]:
        """The current epoch's agreed values, and its number as `epoch`."""
        current = self.epochs.current
        return {**current.agreed, "epoch": current.number}

    @property
    def observes(self) -> bool:
        """Whether the order in which gradients come is still to be seen."""
        return self.epochs.observes

    def observed(self, backward: tuple[str, ...]) -> None:
        """The order in which rank 0's gradients came, on every rank after the same step."""
        assumed = self.epochs.current.backward
        self.epochs.observed(None if self.layout(backward) == self.layout(assumed) else backward)

    def decide(self, smallest_vote: int) -> bool:
        """Whether an epoch begins now."""
        return self.epochs.decide(smallest_vote) is not None

    def start_timer(self) -> None:
        """Where a policy has something to do beside training, or decided by statistics; else nothing is kept or shared.
        Where a plan is kept fit, what keeps it."""
        for beside in (self.reorder, self.autopilot):
            if beside is not None:
                beside.start()
        if self.timer is None:
            return
        if self.timer.needed:
            self.timer.start()
        else:
            self.timer = None

    def stop(self) -> None:
        """What runs beside training ends."""
        for beside in (self.timer, self.reorder, self.autopilot):
            if beside is not None:
                beside.stop()

    def record(self, name: str, value: float) -> None:
        """A statistic, where somebody can ask for it."""
        if self.timer is not None:
            self.timer.statistics.record(name, value)


Planned = Callable[[Sequence[str]], Plan]
"""A default plan, given names in the order in which backward makes their gradients."""


def planned_of(planned: Planned, epoch: Epoch, gradients: Mapping[str, Gradient]) -> Plan:
    """The default plan of an epoch: for the order of backward that was seen, else for the one that registration suggests."""
    return planned(epoch.backward or bucket_memory.assumed_backward(gradients))


def of_plan(
    plan: Plan | Planned,
    gradients: Mapping[str, Gradient],
    *,
    traced: TracedBuckets | None = None,
    timer: Callable[[Epochs], Timer] | None = None,
    reorder: Reorder | None = None,
) -> ProgramSource:
    """One epoch without an end for a plan that was given; for a default plan one more when backward's order is seen; with
    `reorder`, one for each order of ranks; with a `timer`, one for what policies agree on. `traced`: the buckets that go by
    policies.

    Raises ArtefactError: the plan is not sound, or for another model. UsageError: it has what sessions do not run.
    """
    if isinstance(plan, Plan):
        bucket_memory.check_runs(plan, gradients)

    def current(epoch: Epoch) -> Plan:
        made = plan if isinstance(plan, Plan) else planned_of(plan, epoch, gradients)
        orders = epoch.agreed.get(ORDER)
        return arranged(made if orders is None else reordered(made, decode(str(orders))), gradients)

    def make(epoch: Epoch) -> list[CompiledBucket]:
        now = current(epoch)
        return bucket_memory.of_plan(now, gradients, None if traced is None else traced.programs(now, epoch))

    def layout(backward: tuple[str, ...]) -> object:
        return _contents(current(Epoch(0, backward=backward)))

    scopes = [] if traced is None else list(traced.scopes.values())
    epochs = Epochs(Epoch(0, _initial(scopes))) if reorder is None else reorder.epochs
    epochs.observes = not isinstance(plan, Plan)
    policies = tuple(scope.policy for scope in scopes)
    beside = None if timer is None else timer(epochs)
    return ProgramSource(epochs, make, current, layout, policies, beside, reorder)


def driven(autopilot: Autopilot, planned: Planned, gradients: Mapping[str, Gradient]) -> ProgramSource:
    """A default plan that the job's own measurements may replace: an epoch for backward's order, and one for each plan."""

    def make(epoch: Epoch) -> list[CompiledBucket]:
        made = autopilot.programs(epoch)
        return bucket_memory.of_plan(autopilot.plan(epoch), gradients) if made is None else made

    def layout(backward: tuple[str, ...]) -> object:
        return _contents(planned(backward))

    return ProgramSource(autopilot.epochs, make, autopilot.plan, layout, autopilot=autopilot)


def of_policy(
    scope: Scope,
    gradients: Mapping[str, Gradient],
    *,
    traced: TracedBuckets,
    timer: Callable[[Epochs], Timer],
) -> ProgramSource:
    """A policy that also decides which gradients travel together, and which at all. It is traced on every rank for all ranks.

    PolicyError when what comes out is not the same everywhere.
    """
    policy = scope.policy

    def current(epoch: Epoch) -> Plan:
        return traced.plan(scope, epoch)

    def make(epoch: Epoch) -> list[CompiledBucket]:
        now = current(epoch)
        return bucket_memory.of_plan(now, gradients, traced.programs(now, epoch))

    def layout(backward: tuple[str, ...]) -> object:
        made = current(Epoch(0, epochs.current.agreed, backward=backward)).buckets
        if type(policy).on_tensor_ready is Policy.on_tensor_ready:
            return [(frozenset(bucket.variables), bucket.priority) for bucket in made]
        # Such a handler may look at the orders themselves.
        return made, backward

    epochs = Epochs(Epoch(0, _initial([scope])), observes=policy.exchanges == "gradients")
    return ProgramSource(epochs, make, current, layout, (policy,), timer(epochs))


def _contents(plan: Plan) -> list[frozenset[str]]:
    return [frozenset(bucket.variables) for bucket in plan.buckets]


def _initial(scopes: Sequence[Scope]) -> dict[str, Value]:
    return {name: value for scope in scopes for name, value in scope.initial().items()}

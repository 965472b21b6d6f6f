"""Where a model's programs come from, epoch by epoch: a plan, whose order may change, or a policy, which is traced again.

A plan that was given stays as it is. Where none was, and with policies, the first backward shows in which order gradients really
come; where that makes other buckets, an epoch with these begins. The order is rank 0's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.launch.rendezvous import Job
from hocket.planning.ordering.classes import reordered
from hocket.policy.epoch import Epoch, Epochs
from hocket.policy.observed import Guard
from hocket.policy.policy import Policy, Value
from hocket.policy.trace import TraceContext
from hocket.policy.trace import layout as traced_layout
from hocket.training import buckets as bucket_memory
from hocket.training import shared
from hocket.training.buckets import CompiledBucket
from hocket.training.reorder import ORDER, Reorder, decode
from hocket.training.timer import Timer


@dataclass
class ProgramSource:
    """`buckets` gives those of the current epoch; `timer` is there for policies alone, `reorder` for plans."""

    epochs: Epochs
    make: Callable[[Epoch], list[CompiledBucket]]
    layout: Callable[[tuple[str, ...]], object] = tuple
    """What an order of backward comes to: where it is equal, another order changes nothing."""
    plan: Callable[[Epoch], Plan | None] = lambda _epoch: None
    policy: Policy | None = None
    timer: Timer | None = None
    reorder: Reorder | None = None
    guards: list[Guard] = field(default_factory=list)

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
        Where a plan's order is kept fit, what keeps it."""
        if self.reorder is not None:
            self.reorder.start()
        if self.timer is None:
            return
        handlers = ("on_timer", "on_worker_added", "on_worker_removed")
        own = any(getattr(type(self.policy), each) is not getattr(Policy, each) for each in handlers)
        if own or self.guards:
            self.timer.start()
        else:
            self.timer = None

    def stop(self) -> None:
        """What runs beside training ends."""
        for beside in (self.timer, self.reorder):
            if beside is not None:
                beside.stop()

    def record(self, name: str, value: float) -> None:
        """A statistic, where somebody can ask for it."""
        if self.timer is not None:
            self.timer.statistics.record(name, value)


Planned = Callable[[Sequence[str]], Plan]
"""A default plan, given names in the order in which backward makes their gradients."""


def of_plan(
    plan: Plan | Planned, gradients: Mapping[str, Gradient], reorder: Reorder | None = None
) -> ProgramSource:
    """One epoch without an end for a plan that was given; for a default plan one more when backward's order is seen; with
    `reorder`, one for each order of ranks."""

    def current(epoch: Epoch) -> Plan:
        made = (
            plan
            if isinstance(plan, Plan)
            else plan(epoch.backward or bucket_memory.assumed_backward(gradients))
        )
        orders = epoch.agreed.get(ORDER)
        return made if orders is None else reordered(made, decode(str(orders)))

    def make(epoch: Epoch) -> list[CompiledBucket]:
        return bucket_memory.of_plan(current(epoch), gradients)

    def layout(backward: tuple[str, ...]) -> object:
        made = current(Epoch(0, backward=backward))
        return [frozenset(bucket.variables) for bucket in made.buckets]

    epochs = Epochs(Epoch(0)) if reorder is None else reorder.epochs
    epochs.observes = not isinstance(plan, Plan)
    return ProgramSource(epochs, make, layout, current, reorder=reorder)


def of_policy(
    policy: Policy,
    gradients: Mapping[str, Gradient],
    job: Job,
    context: TraceContext,
    fail: Callable[[str], None],
) -> ProgramSource:
    """Traced on every rank for all ranks, from what `context` says of the first epoch.

    PolicyError when what comes out is not the same everywhere.
    """

    def make(epoch: Epoch) -> list[CompiledBucket]:
        now = TraceContext.of(policy, context.topology, epoch.agreed, epoch.snapshot, context.tuning)
        made, source.guards = shared.of_policy(policy, gradients, now, epoch.backward, job)
        return made

    def layout(backward: tuple[str, ...]) -> object:
        made = traced_layout(policy, bucket_memory.ordered(gradients, backward), context).buckets
        if type(policy).on_tensor_ready is Policy.on_tensor_ready:
            return [(frozenset(one.name for one in each.gradients), each.priority) for each in made]
        # Such a handler may look at the orders themselves.
        return made

    epochs = Epochs(Epoch(0, context.agreed), observes=policy.exchanges == "gradients")
    source = ProgramSource(epochs, make, layout, policy=policy)
    source.timer = Timer(
        policy, job, topology=context.topology, epochs=source.epochs, guards=lambda: source.guards, fail=fail
    )
    return source

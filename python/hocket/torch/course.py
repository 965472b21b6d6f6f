"""Where a model's programs come from, epoch by epoch: a plan, whose order may change, or a policy, which is traced again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

import torch
from hocket.artefacts.plan import Plan
from hocket.errors import PolicyError
from hocket.launch.rendezvous import Job
from hocket.torch import buckets
from hocket.torch.buckets import Spec
from hocket.torch.reorder import ORDER, Reorder, decode
from hocket.torch.timer import Timer
from hocket.tracing.epoch import Epoch, Epochs
from hocket.tracing.observed import Guard
from hocket.tracing.policy import Policy
from hocket.tracing.trace import Scene


@dataclass
class Course:
    """`specs` gives the buckets of the current epoch; `timer` is there for policies alone, `reorder` for plans."""

    epochs: Epochs
    make: Callable[[Epoch], list[Spec]]
    policy: Policy | None = None
    timer: Timer | None = None
    reorder: Reorder | None = None
    guards: list[Guard] = field(default_factory=list)

    def specs(self) -> list[Spec]:
        """Buckets and programs of the current epoch, the same on all ranks."""
        return self.make(self.epochs.current)

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


def of_plan(
    plan: Plan, parameters: Mapping[str, torch.nn.Parameter], reorder: Reorder | None = None
) -> Course:
    """One epoch without an end; with `reorder`, one for each order."""

    def make(epoch: Epoch) -> list[Spec]:
        order = epoch.agreed.get(ORDER)
        current = plan if order is None else msgspec.structs.replace(plan, order=decode(str(order)))
        return buckets.of_plan(current, parameters)

    return Course(Epochs(Epoch(0)) if reorder is None else reorder.epochs, make, reorder=reorder)


def of_policy(
    policy: Policy,
    parameters: Mapping[str, torch.nn.Parameter],
    job: Job,
    scene: Scene,
    fail: Callable[[str], None],
) -> Course:
    """Traced on every rank for all ranks, from what `scene` says of the first epoch.

    PolicyError when what comes out is not the same everywhere.
    """

    def make(epoch: Epoch) -> list[Spec]:
        now = Scene.of(policy, scene.topology, epoch.agreed, epoch.snapshot, scene.tuning)
        specs, course.guards = buckets.of_policy(policy, parameters, now)
        _agree(policy, specs, job)
        return specs

    first = Epoch(0, scene.agreed)
    course = Course(Epochs(first), make, policy)
    course.timer = Timer(
        policy, job, topology=scene.topology, epochs=course.epochs, guards=lambda: course.guards, fail=fail
    )
    return course


def _agree(policy: Policy, specs: list[Spec], job: Job) -> None:
    digest = hashlib.sha256()
    for spec in specs:
        digest.update(f"{spec.names} {spec.priority} {spec.program}".encode())
    digests = job.store.gather(
        "policy/digest", job.rank, job.world, digest.hexdigest(), job.settings.timeout_s
    )
    other = next((rank for rank, each in enumerate(digests) if each != digests[0]), None)
    if other is not None:
        raise PolicyError(
            f"{type(policy).__name__} makes other programs on rank {other} than on rank 0\n"
            "hint: handlers are run for all ranks on every rank: they may depend on `cx` alone, not on files, time or chance"
        )

"""Means among the replicas of sharded models: FSDP2 shards inside a host, Hocket reduces the shards between hosts.

    mesh = init_device_mesh("cpu", (hosts, ranks_of_a_host), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    hk.hsdp_hook(model, promise="rounded")

The ranks of a model's mesh hold one copy of it; the replicas of a shard are the ranks at the same place of the other copies. Each
unit of FSDP2 gives its reduce-scattered gradients as one buffer, which is one bucket. Where FSDP2 only keeps the buffer as
gradients, it travels while backward goes on, until backward ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from weakref import WeakSet

import torch
from torch import nn

from hocket import _native
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.needs import check_kept, needs_of
from hocket.artefacts.plan import Plan, Traced
from hocket.artefacts.promise import Promise
from hocket.errors import Error, ReplicaError, UsageError
from hocket.job.first_file import of_rank_0
from hocket.policy.policy import Policy
from hocket.refusals import ABLE, check_able
from hocket.settings import Settings
from hocket.torch.backward import when_it_ends
from hocket.torch.dtypes import DTYPES
from hocket.torch.fsdp_units import Unit, local, units_of
from hocket.torch.hooked import Hooked, check_hook, check_ranks, hook_of
from hocket.torch.older import FSDPModule
from hocket.torch.rendezvous import publish
from hocket.training.assemble.asked import agree_on_call, policy_asked, promise_asked
from hocket.training.features import of_plan
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.scopes import Scope
from hocket.training.process import Process, joined, reporting
from hocket.training.programs.among import Among, ByPlan, Make, by_policy, check_plan, chosen

FSDP = "FSDP2"

_numbers = itertools.count()
_hooked: WeakSet[FSDPModule] = WeakSet()
"""Modules of FSDP2 that have the hook."""


class Replicas:
    """Replicas of this rank's shards, whose gradients become the mean among them.

    Attributes:
        ranks: ranks of the job that hold the same shards as this one, which is among them, by copy of the model.
    """

    def __init__(self, process: Process, ranks: tuple[int, ...], make: Make) -> None:
        """Begin before the first backward. `make`: maker of the buffers' programs."""
        self.ranks = ranks
        self._process, self._make = process, make
        self._hooked = Hooked(process, make)
        self._put_off: dict[int, torch.Tensor] = {}
        """By unit, the sum of micro-steps whose mean among replicas was put off."""
        self._under_way: list[tuple[Unit, torch.Tensor, int, LoadedBucket]] = []
        """Buffers of this backward that travel, each with its version as it was given."""
        self._backward = -1
        """Number of that backward in PyTorch."""

    @property
    def plan(self) -> Plan:
        """Plan by which the buffers travel, to be written to a file, changed, and given to `hsdp_hook`.

        UsageError: a policy decides, or no backward has brought buffers yet.
        """
        if not isinstance(self._make, ByPlan):
            raise UsageError(
                "no plan: a policy decides how shards travel\nhint: hk.hsdp_hook(model) without one"
            )
        made = self._make.plan()
        if not made.buckets:
            raise UsageError("no plan yet: FSDP2 gives its buffers in the first backward\nhint: ask after it")
        return made

    def reduce(self, unit: Unit, buffer: torch.Tensor) -> None:
        """Turn a unit's buffer into the mean among replicas; FSDP2 calls this, in the same order on all replicas.

        PeerError: another rank failed. UsageError: the buffer is another one than the plan has.
        """
        self._settle_earlier()
        before = self._put_off.pop(unit.at, None)
        if before is not None and before.shape != buffer.shape:
            raise UsageError(
                f"`{unit.name}`: {before.numel()} elements were put off by set_requires_all_reduce(False), and {buffer.numel()} "
                "come now: other parameters have gradients\nhint: set_requires_gradient_sync(False) for such micro-steps"
            )
        if before is not None:
            buffer.add_(before)
        if not unit.all_reduces:
            self._put_off[unit.at] = buffer.clone()
            buffer.zero_()
            return
        own = self._hooked.bucket(unit.at, buffer, [buffer.shape], name=unit.name, priority=unit.at)
        self._hooked.launch(own, buffer)
        given = unit, buffer, buffer._version, own
        if not unit.keeps(buffer):
            self._land(*given)
            return
        if not self._under_way:
            self._backward = torch._C._current_graph_task_id()
            when_it_ends(self._settle)
        self._under_way.append(given)

    def _land(self, unit: Unit, buffer: torch.Tensor, _version: int, own: LoadedBucket) -> None:
        """Wait for a buffer's mean."""
        self._process.engine.wait(own.program, self._process.job.settings.timeout_s)
        self._hooked.land(own, buffer)
        if unit.divides:
            # As a sum among replicas: FSDP2 divides by the script's factor in place of the number of ranks.
            buffer.mul_(len(self.ranks))

    def _settle(self) -> None:
        """Wait for the means of all buffers that travel, as backward ends."""
        under_way, self._under_way = self._under_way, []
        for unit, buffer, version, own in under_way:
            if buffer._version != version or not unit.holds(buffer):
                raise Error(
                    f"`{unit.name}`: PyTorch {torch.__version__} used gradients before backward ended, without their means\n"
                    "hint: report this, with what the script does to gradients in backward"
                )
            self._land(unit, buffer, version, own)

    def _settle_earlier(self) -> None:
        """Wait for what an earlier backward, which an error ended, has left under way."""
        if self._under_way and self._backward != torch._C._current_graph_task_id():
            for _, _, _, own in self._under_way:
                self._process.engine.wait(own.program, self._process.job.settings.timeout_s)
            self._under_way = []


def hsdp_hook(
    model: nn.Module,
    *,
    plan: Plan | None = None,
    policy: Policy | None = None,
    promise: Promise | str | None = None,
) -> Replicas:
    """Average the gradients of a model that FSDP2 has sharded among the replicas of each shard, by all-reduces of Hocket's.

    Every rank of the job calls it, after `fully_shard` and before the first forward. The mesh of `fully_shard` has the ranks of one
    copy of the model, such as those of a host. Gradients then are the means over all ranks, as with native HSDP, whose mesh has a
    dimension of replicas. Micro-steps without gradient synchronisation send nothing. The default plan is for the network that a job
    finds as it starts.

    Args:
        model: with units of FSDP2 (`torch.distributed.fsdp.fully_shard`), on the CPU or a device.
        plan: for as many ranks as each shard has replicas, with a bucket for each unit, by its name; see `Replicas.plan`. Default:
            that of `settings`, else one by the network.
        policy: in place of a plan; default: that of `settings`.
        promise: as in `distribute`; merged and late gradients are not for hooks.

    Returns:
        The replicas of this rank's shards, and their plan.

    Raises:
        UsageError: the model has no units or no replicas, has the hook already or has begun to train, or plan, policy or promise
            need what hooks lack; later, out of `backward`: a buffer is not of the plan.
        ReplicaError: replicas begin with other parameters.
        RendezvousError: ranks do not meet, or call this with other arguments.
        PolicyError: the policy is refused, out of the first `backward`.
        PeerError: later, out of `backward`: another rank died or gave up.
    """
    settings = Settings.from_environment()
    units = list(units_of(model))
    _check_units(units)
    policy = policy_asked(plan, policy, settings)
    promise = promise_asked(promise, settings)
    _check_policy(plan, policy, promise)
    check_hook(FSDP, policy, promise, settings)
    process = joined(settings, publish)
    check_ranks(process, FSDP, "shards")
    with reporting(process):
        agree_on_call(process, {"plan": plan, "policy": policy, "promise": promise}, call="hsdp_hook")
        number = next(_numbers)
        among = Among(process, _replicas(process, units), hook_of(FSDP), number)
        _check_equal(process, among.ranks, model)
        make = _maker(among, units, plan=plan, policy=policy, promise=promise)
        # Connects, where all ranks are.
        _ = process.engine
    replicas = Replicas(process, among.ranks, make)
    for unit in units:
        unit.module.set_all_reduce_hook(partial(replicas.reduce, unit))
        _hooked.add(unit.module)
    return replicas


def _check_units(units: Sequence[Unit]) -> None:
    """Raise UsageError unless the model is as `fully_shard` leaves it, with values."""
    if not hasattr(FSDPModule, "set_all_reduce_hook"):
        raise UsageError(
            f"hsdp_hook: FSDP2 of PyTorch {torch.__version__} has no `set_all_reduce_hook`\nhint: take a newer PyTorch"
        )
    if not units:
        raise UsageError(
            "hsdp_hook: no module of the model is sharded\nhint: torch.distributed.fsdp.fully_shard(model, mesh=…) first; a model "
            "that is whole on each rank is for `hk.distribute`"
        )
    again = next((unit.name for unit in units if unit.module in _hooked), None)
    if again is not None:
        raise UsageError(f"hsdp_hook: `{again}` has the hook already\nhint: one call for the whole model")
    for unit in units:
        for each in unit.parameters:
            kind = local(each).device.type
            if kind == "meta":
                raise UsageError(
                    f"hsdp_hook: parameters of `{unit.name}` have no values yet\n"
                    "hint: call it after model.to_empty(…) and their initialisation"
                )
            if each.grad is not None:
                raise UsageError(
                    f"hsdp_hook: parameters of `{unit.name}` have gradients, and replicas went apart in that backward\n"
                    "hint: call it before the first forward"
                )


def _check_policy(plan: Plan | None, policy: Policy | None, promise: Promise | None) -> None:
    """Raise UsageError if a policy is beside a plan, or promises less than is asked for."""
    if policy is None:
        return
    if plan is not None:
        raise UsageError("hsdp_hook: a plan and a policy, and each would have all shards\nhint: one of them")
    scope = Scope(Traced(policy=type(policy).__name__), policy)
    check_kept(promise, scope.needs, f"policy {scope.route.policy}")


def _replicas(process: Process, units: Sequence[Unit]) -> tuple[int, ...]:
    """Return the ranks that hold the same shards as this one, by copy of the model. UsageError: there are no other ones, or copies
    differ in shape."""
    job = process.job
    meshes = [unit.ranks for unit in units]
    own = meshes[0]
    other = next((mesh for mesh in meshes if mesh != own), None)
    if other is not None:
        raise UsageError(
            f"hsdp_hook: units are sharded over ranks {_named(own)} and over {_named(other)}: their replicas are others\n"
            "hint: one mesh for the whole model"
        )
    copies = sorted(
        {
            tuple(each)
            for each in job.store.gather("hsdp/mesh", job.rank, job.world, own, job.settings.start_timeout_s)
        }
    )
    if len(copies) == 1:
        raise UsageError(
            f"hsdp_hook: the model's mesh has all {job.world} ranks of the job: FSDP2 itself reduces over all, and no shard has "
            'replicas\nhint: fully_shard(model, mesh=mesh["shard"]), of a mesh of ("replicate", "shard"), not the whole mesh'
        )
    if (
        sorted(rank for copy in copies for rank in copy) != list(range(job.world))
        or len(set(map(len, copies))) > 1
    ):
        raise UsageError(
            f"hsdp_hook: meshes of ranks {'; '.join(map(_named, copies))} are no copies of one model over the {job.world} ranks "
            "of the job\nhint: meshes of one size, each rank in one"
        )
    place = own.index(job.rank)
    return tuple(copy[place] for copy in copies)


def _check_equal(process: Process, ranks: Sequence[int], model: nn.Module) -> None:
    """Raise ReplicaError for the first parameter in which replicas differ."""
    job = process.job
    names, parts = [], []
    for name, each in model.named_parameters():
        names.append(name)
        parts.append(local(each.detach()).cpu().contiguous())
    own = _native.digests([(each.data_ptr(), each.nbytes) for each in parts])
    given = job.store.gather("hsdp/digests", job.rank, job.world, own, job.settings.start_timeout_s)
    for at, name in enumerate(names):
        apart = [rank for rank in ranks if given[rank][at : at + 1] != given[ranks[0]][at : at + 1]]
        if apart:
            raise ReplicaError(
                f"hsdp_hook: rank {apart[0]} on {job.hosts[apart[0]]} begins with another `{name}` than rank {ranks[0]} on "
                f"{job.hosts[ranks[0]]}, which has the same shard\n"
                "hint: the same seed on all ranks before the model is made, or the same checkpoint",
                ranks=tuple(apart),
                parameters=(name,),
            )


def _maker(
    among: Among,
    units: Sequence[Unit],
    *,
    plan: Plan | None,
    policy: Policy | None,
    promise: Promise | None,
) -> Make:
    """Return the maker of programs. UsageError: the plan promises less than is asked for, or needs what hooks lack."""
    job = among.process.job
    if policy is not None:
        return by_policy(policy, among)
    plan = plan or of_rank_0(job, "plan", job.settings.plan, Plan)
    if plan is not None:
        check_able(among.hook, ABLE - {"optimizer", "rows"}, of_plan(plan))
        check_kept(promise, needs_of(plan), f"plan `{plan.label}`")
        check_plan(plan, among, [unit.name for unit in units])
        return ByPlan(among, plan)
    gradients = [
        Gradient(
            unit.name,
            (sum(local(each).numel() for each in unit.parameters),),
            # As an estimate of what travels: the type of reductions may be another.
            DTYPES.get(unit.parameters[0].dtype, "f32"),
        )
        for unit in reversed(units)
    ]
    return ByPlan(among, chosen(gradients, among, promise))


def _named(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))

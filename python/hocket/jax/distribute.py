"""`distribute`, which makes a process's parameters train together with those of the other ranks, and its companions."""

from __future__ import annotations

from typing import TypeVar

import jax

from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.jax.leaves import Leaves
from hocket.policy.policy import Policy
from hocket.settings import Settings
from hocket.training.assemble.compiled_job import CompiledJob, Distributed

Parameters = TypeVar("Parameters")
Found = Distributed[Leaves]
"""Parameters in training."""

_job = CompiledJob[Leaves]("params = hk.distribute(params)")
distributed = _job.distributed
agreed = _job.agreed
log = _job.log
rank = _job.rank
record = _job.record
world = _job.world


def distribute(
    params: Parameters,
    *,
    plan: Plan | None = None,
    policy: Policy | None = None,
    promise: Promise | str | None = None,
    settings: Settings | None = None,
) -> Parameters:
    """Train `params` together with the other ranks of the job, and return rank 0's values on every rank.

    Gradients are reduced where a function that `gradients` compiles calls `mean`. A process trains one tree at a time: a further
    call takes the place of the one before, whose compiled functions then raise.

    Args:
        params: a pytree of arrays; those of f64, f32, f16 and bf16 are trained, those of integers are only made equal.
        plan: default: the plan file of `settings`, else one for the cluster of `settings`, else one for the network that the job
            finds as it starts, else one from the hosts alone. Rank 0's files count. A default plan follows the order in which
            backward makes gradients, which the first step records.
        policy: decides how gradients travel, instead of a plan; default: the policy of `settings`.
        promise: how far results may be from exact means, as with `hocket.torch.distribute`.
        settings: default: from the environment. Settings that would need to see into compiled functions are refused.

    Raises:
        RendezvousError: ranks do not meet, or their trees differ.
        ArtefactError: the plan is not sound, or for another model.
        UsageError: leaves or devices that Hocket does not support, or a plan or policy that compiled functions cannot keep.
        PolicyError: the policy cannot be traced or is refused.

    >>> import jax.numpy as jnp
    >>> distribute({"w": jnp.ones(3)})["w"].tolist()
    [1.0, 1.0, 1.0]
    """
    leaves = Leaves(params)
    train(leaves, plan=plan, policy=policy, promise=promise, settings=settings)
    return leaves.tree()  # type: ignore[no-any-return]


def train(
    leaves: Leaves,
    *,
    plan: Plan | None,
    policy: Policy | None,
    promise: Promise | str | None,
    settings: Settings | None,
) -> None:
    """Distribute leaves, which get rank 0's values."""
    if jax.local_device_count() > 1:
        raise UsageError(
            f"this process has {jax.local_device_count()} devices of JAX, and a rank has one\n"
            "hint: without --xla_force_host_platform_device_count and jax_num_cpu_devices; more ranks instead"
        )
    _job.distribute(leaves, plan=plan, policy=policy, promise=promise, settings=settings)

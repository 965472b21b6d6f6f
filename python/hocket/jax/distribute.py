"""`distribute`, which makes a process's parameters train together with those of the other ranks, and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import jax

from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.jax.leaves import Leaves
from hocket.launch.first_file import of_rank_0
from hocket.policy.policy import Policy, Value
from hocket.settings import Settings
from hocket.training.choice import policy_of, promise_asked, spans_of
from hocket.training.compiled import CompiledSession
from hocket.training.compiled_refusals import check_asked, check_plan
from hocket.training.process import joined
from hocket.training.start import compiled_session_of, prepare

Parameters = TypeVar("Parameters")


@dataclass(frozen=True)
class Distributed:
    """Parameters in training."""

    leaves: Leaves
    session: CompiledSession


_last: Distributed | None = None


def distribute(
    params: Parameters,
    *,
    plan: Plan | None = None,
    policy: Policy | None = None,
    promise: Promise | str | None = None,
    settings: Settings | None = None,
) -> Parameters:
    """Train `params` together with the other ranks of the job: returns rank 0's, on every rank.

    Gradients are reduced where a function that `gradients` compiles calls `mean`. A process trains one tree at a time: a further
    call takes the place of the one before, whose compiled functions then raise.

    Args:
        params: a pytree of arrays; those of f64, f32, f16 and bf16 are trained, those of integers are only made equal.
        plan: default: the plan file of `settings`, else one for the cluster of `settings`, else one for the network that the job
            finds as it starts, else one from the hosts alone. Rank 0's files count. A default plan follows the order in which
            backward makes gradients, which the first step records.
        policy: how gradients travel, instead of a plan; default: the policy of `settings`.
        promise: how far results may be from exact means, as with `hocket.torch.distribute`.
        settings: default: from the environment. What of them needs to see into compiled functions is refused.

    Raises:
        RendezvousError: ranks do not meet, or their trees differ.
        ArtefactError: the plan is not sound, or for another model.
        UsageError: leaves or devices that Hocket does not support, or a plan or policy that compiled functions cannot keep.
        PolicyError: the policy cannot be traced or is refused.

    >>> import jax.numpy as jnp
    >>> distribute({"w": jnp.ones(3)})["w"].tolist()
    [1.0, 1.0, 1.0]
    """
    global _last  # noqa: PLW0603  # a pytree has no identity by which to find its session
    if jax.local_device_count() > 1:
        raise UsageError(
            f"this process has {jax.local_device_count()} devices of JAX, and a rank has one\n"
            "hint: without --xla_force_host_platform_device_count and jax_num_cpu_devices; more ranks instead"
        )
    leaves = Leaves(params)
    settings = settings or Settings.from_environment()
    check_asked(settings)
    policy = policy_of(plan, policy, settings)
    asked = promise_asked(promise, settings)
    process = joined(settings)
    try:
        plan = plan or of_rank_0(process.job, "plan", settings.plan, Plan)
        if plan is not None:
            check_plan(plan)
        if _last is not None:
            _last.session.close()
            _last = None
        source = prepare(
            leaves, plan=plan, policy=policy, promise=asked, process=process, settings=settings, compiled=True
        )
        spans = spans_of(process, settings)
        session = compiled_session_of(leaves, source, process=process, spans=spans)
    except BaseException as error:
        process.abort(f"{type(error).__name__}: {error}")
        raise
    _last = Distributed(leaves, session)
    process.also_close(session.close)
    session.start()
    return leaves.tree()  # type: ignore[no-any-return]


def distributed() -> Distributed:
    """What the process trains. UsageError: nothing."""
    if _last is None:
        raise UsageError("nothing is distributed\nhint: params = hk.distribute(params)")
    return _last


def log(**values: Any) -> None:
    """Add values of this step (`step=3, loss=2.5`) to the trace. Without a trace, this does nothing."""
    spans = distributed().session.spans
    if spans is not None:
        spans.log(**values)


def record(**values: float) -> None:
    """Add values of this step to this rank's statistics, which a policy reads. Without a policy, this does nothing."""
    for name, value in values.items():
        distributed().session.record(name, value)


def agreed() -> dict[str, Value]:
    """The values on which all ranks agree in the current epoch, by name, and its number as `epoch`."""
    return dict(distributed().session.agreed())


def rank() -> int:
    """This process's rank in the job."""
    return distributed().session.job.rank


def world() -> int:
    """Number of ranks in the job."""
    return distributed().session.job.world

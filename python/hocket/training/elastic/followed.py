"""Source of programs for the remaining ranks after a loss, with a policy or without one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hocket.artefacts.plan import Plan
from hocket.errors import PolicyError, ProgramError
from hocket.job.rendezvous import Job
from hocket.training.elastic.plans import following, means
from hocket.training.memory.buckets import CompiledBucket
from hocket.training.programs.source import ProgramSource

log = logging.getLogger("hocket.elastic")


def followed(
    before: ProgramSource, plan: Plan, job: Job, epoch: int, alive: Sequence[int]
) -> tuple[ProgramSource, list[CompiledBucket]]:
    """Return the source of the remaining ranks, which are those of `job`, and its programs: plain means, where a policy refuses
    these ranks and the job may go on with means.

    `plan`: that of all ranks that have met, of which those `alive` remain; `epoch`: number of the epoch of members.
    """
    assert before.following is not None  # noqa: S101  # of an elastic job
    plan = following(plan, job.hosts, alive)
    source = before.following(plan, job, epoch)
    try:
        return source, source.buckets()
    except (PolicyError, ProgramError) as error:
        if job.settings.on_refusal == "end":
            raise error.reworded(
                f"{job.world} ranks are left, and a policy of the job refuses them: {error}\n"
                "hint: HOCKET_ON_REFUSAL=means, or on-refusal=means in --elastic, goes on with plain means"
            ) from error
        if job.rank == 0:
            log.warning(
                "%d ranks go on, and a policy of the job refuses them: gradients are plain means until others come or go. %s",
                job.world,
                error,
            )
    source = before.following(means(plan, job.hosts), job, epoch)
    return source, source.buckets()

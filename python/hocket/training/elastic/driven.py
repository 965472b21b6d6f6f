"""Source of programs in an elastic job with an autopilot: each epoch of members has an autopilot of its own.

Remaining members go on at once with the buckets that they have, by default routes. Their autopilot knows the network and the
model's times from before, and so asks the planner without another look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.job.rendezvous import Job
from hocket.members.members_store import Among
from hocket.policy.epoch import Epoch
from hocket.training.autopilot.autopilot import Autopilot, useful
from hocket.training.autopilot.knowledge import Knowledge
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.beside.beside import Beside
from hocket.training.elastic.plans import with_barrier
from hocket.training.elastic.source import Begin, Sources
from hocket.training.memory.arenas import arranged
from hocket.training.memory.runnable import check_runs
from hocket.training.prepared import Stay
from hocket.training.programs.source import ProgramSource, driven


def driven_source(
    plan: Plan,
    knowledge: Knowledge,
    gradients: Mapping[str, Gradient],
    *,
    process: Stay,
    begin: Begin | None,
) -> ProgramSource:
    """Return the source of all ranks that have just met, on several hosts. `plan`: their first; `begin`: the job's epoch, if any.

    ArtefactError: the plan is not sound. UsageError: the plan has parts that sessions do not run.
    """
    check_runs(plan, gradients)
    number = 0 if begin is None else begin[0]
    return _Driven(gradients, process).of(
        plan, process.job, Epoch(number), knowledge, members=0, watch=Stopwatch()
    )


class _Driven:
    """State that stays the same while members come and go."""

    def __init__(self, gradients: Mapping[str, Gradient], process: Stay) -> None:
        self._gradients, self._process = gradients, process

    def of(
        self, plan: Plan, job: Job, first: Epoch, knowledge: Knowledge, *, members: int, watch: Stopwatch
    ) -> ProgramSource:
        """Return the source of an epoch of members, which begins with this plan; 0: the epoch of all that have met."""
        if not useful(job, asked=knowledge.asked):
            # Nor will it be useful until other ranks come and all meet.
            return Sources(False, (), self._gradients, self._process).of(
                plan, job, first, members=members, before=None
            )
        now = arranged(with_barrier(plan), self._gradients)
        among = Among(self._process.generation, members, self._process.everyone)
        autopilot = Autopilot(
            Beside(job, self._process.abort, among),
            self._process.engine,
            knowledge,
            lambda _: now,
            first=first,
            watch=watch,
        )

        def following(kept: Plan, others: Job, number: int) -> ProgramSource:
            watch.members_changed()
            # This epoch names no plan: the plan in force was for other ranks, and `kept` has its buckets.
            left = Epoch(autopilot.epochs.current.number)
            known = autopilot.knowledge.among(others, kept)
            return self.of(kept, others, left, known, members=number, watch=watch)

        source = driven(autopilot, lambda _: now, self._gradients, job)
        return dataclasses.replace(
            source, plan=lambda epoch: with_barrier(autopilot.plan(epoch)), following=following
        )

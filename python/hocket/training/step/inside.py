"""Steps together inside sites, while sites step alone: an exchange of gradients in every backward, among the ranks of a site.

    backward:            buckets as they become ready → the site's mean, the same bits on its ranks
    optimizer.step():    on that mean, on all of the site alike; ends an iteration of the schedule (`alone`)
    every so many:       how far ranks came → all ranks, whose equal parts count once for each rank

Buckets are the plan's, in memory of their own: gradients lie there, and sums take their place. Backward ends when all means are
there, so everything that a script does with gradients is as in step. Each of these buckets overtakes progress that is under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from hocket import _native
from hocket.artefacts.plan import Plan, Schedule
from hocket.planning import sites
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory import host_programs
from hocket.training.memory.arenas import arenas_of
from hocket.training.memory.buckets import CompiledBucket, parts_of
from hocket.training.memory.device import received
from hocket.training.memory.gradients import gradients_of
from hocket.training.step.updates import Updates
from hocket.training.step.votes import Votes

if TYPE_CHECKING:
    from hocket.training.step.step import Step

NAME = " inside sites"
"""End of the names of buckets in errors and traces."""


class Inside:
    """Exchange of gradients of one session among the ranks of each site, in an epoch. `updates`: its buckets, each with a turn in
    every backward that communicates."""

    def __init__(self, step: Step, plan: Plan, compiled: Sequence[CompiledBucket]) -> None:
        """Load the programs, at the same position on all ranks. `compiled`: the plan's buckets."""
        self._step, job = step, step.job
        self.updates = Updates(step.framework, merges=False)
        made = bucket_memory.load(
            _within(plan, compiled, step),
            step.engine,
            step.framework.array,
            epoch=step.source.epochs.current.number,
            rank=job.rank,
            device=step.framework.device,
            ends=NAME,
        )
        self.updates.place(made, [bucket.slots for bucket in made])
        self.updates.begin(Schedule(), anew=False)
        names = list(gradients_of(step.framework.parameters()))
        self._votes = Votes(step.engine, job.hosts, names, rank=job.rank, sites=sites.sites_of(plan))

    @property
    def held_bytes(self) -> int:
        """Bytes of the gradients' memory."""
        return sum(len(bucket.memory) for bucket in self.updates.buckets)

    def count(self) -> None:
        """Count gradients from now on: no other buckets do."""
        step, updates = self._step, self.updates
        readiness = _native.Readiness(
            step.engine,
            [
                (each.program, len(each.compiled.ranges), updates.arena_of[each.number])
                for each in updates.launches
            ],
            self._began,
            updates.adopt,
            updates.twice,
            step.on_refused,
            updates.schedule,
            made=None if step.framework.device is None else updates.made,
        )
        updates.count(readiness, moves=True)

    def end(self) -> None:
        """Unload the programs: other buckets follow, or none."""
        self._votes.unload()
        bucket_memory.unload(self.updates.launches, self._step.engine)

    def _began(self) -> None:
        step = self._step
        step.loading.check_process()
        step.framework.check_in_place(self.updates.filling)
        step.progress.backward_began()
        step.framework.when_backward_ends(self._ended)

    def _ended(self) -> None:
        """End backward: gradients are their site's means when it returns."""
        step, updates = self._step, self.updates
        began_ns = _native.now_ns()
        step.progress.wait_began()
        step.framework.check_announced()
        unmade = updates.complete()
        with step.naming():
            self._votes.cast(0, unmade, meet=False)
            due = updates.ended(unmade, holds=False)
            self._votes.count(step.job.settings.timeout_s)
            updates.unmade.counted(name for name in unmade if not self._votes.made(name))
            for turn in due:
                updates.wait(turn, step.job.settings.timeout_s)
                updates.readiness.applied(turn.arena)
                bucket = updates.buckets[turn.arena]
                received(step.framework.device, [bucket.memory])
                for name in updates.unmade.taken(turn).intersection(bucket.names):
                    step.framework.drop(name)
            updates.readiness.begin()
        step.progress.wait_ended()
        if step.spans is not None:
            step.spans.waited(step.iteration, began_ns, _native.now_ns())
        step.accumulation.backward_ended()


def _within(plan: Plan, compiled: Sequence[CompiledBucket], step: Step) -> list[CompiledBucket]:
    """Return the plan's buckets with programs for the means of sites; ranks of a host share the cost of compiling them."""
    job, gradients = step.job, {each.name: each for bucket in compiled for each in bucket.gradients}
    parts = [parts_of(bucket) for bucket in compiled]
    runs = {at: arena.runs(parts[at]) for arena in arenas_of(parts, gradients) for at in arena.numbers}
    lengths = [[stop - start for start, stop in runs[at]] for at in range(len(compiled))]
    of_buckets = [(bucket.elements, bucket.dtype) for bucket in plan.buckets]
    key = msgspec.json.encode((plan.world, sites.sites_of(plan), job.hosts, of_buckets, lengths))
    programs = host_programs.compiled(
        job, key, lambda: [sites.means(at, plan, job.hosts, own) for at, own in enumerate(lengths)]
    )
    return [
        CompiledBucket(bucket.gradients, 0, program, parts=bucket.parts)
        for bucket, program in zip(compiled, programs, strict=True)
    ]


def behind(compiled: Sequence[CompiledBucket]) -> list[CompiledBucket]:
    """Return buckets of progress, which gradients of sites overtake."""
    return [replace(bucket, priority=bucket.priority + 1) for bucket in compiled]

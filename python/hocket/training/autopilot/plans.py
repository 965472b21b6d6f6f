"""Plans that can be in force on this rank, with their programs, compiled and verified before any of them begins."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping

import msgspec

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan, Rule
from hocket.job.rendezvous import Job
from hocket.training.memory import buckets
from hocket.training.memory.buckets import CompiledBucket
from hocket.training.memory.runnable import check_runs


def key_of(plan: Plan) -> str:
    """Return a key for what the plan does, the same on all ranks: how the plan came about is left out."""
    buckets = [msgspec.structs.replace(bucket, rule=Rule()) for bucket in plan.buckets]
    done = msgspec.json.encode((plan.world, plan.workers, buckets, plan.schedule))
    return hashlib.sha256(done).hexdigest()[:16]


class Plans:
    """Plans by key."""

    def __init__(
        self,
        gradients: Mapping[str, Gradient],
        job: Job,
        check: Callable[[Plan], None] | None = None,
        ready: Callable[[], Mapping[int, CompiledBucket]] = dict,
    ) -> None:
        """Begin without plans; all are for these gradients. `check` raises UsageError for plans that this job cannot have; `ready`:
        returns buckets that parameter servers hold, see `buckets.of_plan`."""
        self._gradients, self._job, self._check, self._ready = gradients, job, check, ready
        self._held: dict[str, tuple[Plan, list[CompiledBucket]]] = {}

    def hold(self, plan: Plan) -> str:
        """Compile and verify a plan, unless it is there already; return its key. ArtefactError, UsageError, ProgramError: the plan
        is refused."""
        key = key_of(plan)
        if key not in self._held:
            check_runs(plan, self._gradients)
            if self._check is not None:
                self._check(plan)
            made = buckets.of_plan(plan, self._gradients, self._ready(), job=self._job)
            self._held[key] = plan, made
        return key

    def plan(self, key: str) -> Plan:
        return self._held[key][0]

    def programs(self, key: str) -> list[CompiledBucket]:
        """Return the buckets of a plan."""
        return self._held[key][1]

    def forget_all_but(self, keys: Collection[str]) -> None:
        """Free the other plans."""
        self._held = {key: held for key, held in self._held.items() if key in keys}

"""Check that a rank's iteration has the workload for which its plan's merged or late gradients were made."""

from __future__ import annotations

from hocket.artefacts.plan import Plan
from hocket.artefacts.schedule_check import check_workload
from hocket.training.memory.framework import Framework, Workload


class FirstIteration:
    """Check of a session's first iteration, if its plan says for which workload it was made."""

    def __init__(self, framework: Framework, plan: Plan, rank: int) -> None:
        made_for_some = plan.schedule.turns and (plan.batch, plan.accumulation) != (None, None)
        self._seen: Workload | None = framework.workload() if made_for_some else None
        self._plan, self._rank = plan, rank

    def check(self) -> None:
        """Check after the first backward, when nothing is applied yet. ArtefactError: the plan was made for another iteration."""
        seen, self._seen = self._seen, None
        if seen is not None:
            seen.stop()
            check_workload(self._plan, batch=seen.batch, accumulation=seen.backwards, rank=self._rank)

"""Job of a process that trains a model by compiled functions: the part that the adapters of such frameworks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.job.first_file import of_rank_0
from hocket.policy.policy import Policy, Value
from hocket.refusals import check_able
from hocket.settings import Settings
from hocket.training.assemble.asked import Given, agree_on_call, policy_asked, promise_asked
from hocket.training.assemble.choice import spans_of
from hocket.training.assemble.start import compiled_session_of, prepare
from hocket.training.features import of_plan, of_settings, of_source
from hocket.training.memory.compiled_model import CompiledModel
from hocket.training.process import joined, reporting
from hocket.training.step.compiled import CompiledSession

M = TypeVar("M", bound=CompiledModel)


@dataclass(frozen=True)
class Distributed(Generic[M]):
    """Model in training."""

    model: M
    session: CompiledSession


class CompiledJob(Generic[M]):
    """Job with at most one model: models of such frameworks have no identity by which a script could name one of several."""

    def __init__(self, hint: str) -> None:
        """Begin without a model. `hint`: advice in errors when nothing is distributed."""
        self._hint = hint
        self._last: Distributed[M] | None = None

    def distribute(
        self,
        model: M,
        *,
        plan: Plan | None,
        policy: Policy | None,
        promise: Promise | str | None,
        settings: Settings | None,
    ) -> Distributed[M]:
        """Train `model` together with the other ranks, in place of an earlier one; it then has rank 0's values.

        Raises the errors of the frameworks' `distribute`.
        """
        settings = settings or Settings.from_environment()
        check_able(model.script, model.able, of_settings(settings))
        policy = policy_asked(plan, policy, settings)
        asked = promise_asked(promise, settings)
        process = joined(settings)
        with reporting(process):
            agree_on_call(process, {"plan": plan, "policy": policy, "promise": asked})
            plan = plan or of_rank_0(process.job, "plan", settings.plan, Plan)
            if plan is not None:
                check_able(model.script, model.able, of_plan(plan))
            if self._last is not None:
                self._last.session.close()
                self._last = None
            source = prepare(
                model, Given(plan, policy, asked), process=process, settings=settings, compiled=True
            )
            check_able(model.script, model.able, of_source(source))
            spans = spans_of(process, settings)
            session = compiled_session_of(model, source, process=process, spans=spans)
        self._last = Distributed(model, session)
        process.also_close(session.close)
        session.start()
        return self._last

    def distributed(self) -> Distributed[M]:
        """Return the model that the process trains. UsageError: there is none."""
        if self._last is None:
            raise UsageError(f"nothing is distributed\nhint: {self._hint}")
        return self._last

    def log(self, **values: Any) -> None:
        """Add values of this step (`step=3, loss=2.5`) to the trace. Without a trace, this does nothing."""
        spans = self.distributed().session.spans
        if spans is not None:
            spans.log(**values)

    def record(self, **values: float) -> None:
        """Add values of this step to this rank's statistics, which a policy reads. Without a policy, this does nothing."""
        for name, value in values.items():
            self.distributed().session.record(name, value)

    def agreed(self) -> Mapping[str, Value]:
        """Return the values on which all ranks agree in the current epoch, by name, and its number as `epoch`."""
        return dict(self.distributed().session.agreed())

    def rank(self) -> int:
        """Return this process's rank in the job."""
        return self.distributed().session.job.rank

    def world(self) -> int:
        """Return the number of ranks in the job."""
        return self.distributed().session.job.world

"""What sessions watch while they train: whether ranks hold one model (`replicas`), and learn from batches of their own
(`first_gradients`)."""

from __future__ import annotations

from hocket.job.rendezvous import Job
from hocket.training.memory.framework import Framework
from hocket.training.memory.gradients import gradients_of
from hocket.training.memory.replicas import Replicas, may_differ
from hocket.training.programs.source import ProgramSource
from hocket.training.step.first_gradients import FirstGradients
from hocket.training.step.votes import Ballot


class Together:
    """Of one session and those that have met."""

    def __init__(
        self,
        framework: Framework,
        job: Job,
        source: ProgramSource,
        *,
        steps_alone: bool = False,
        begins: int = 1,
    ) -> None:
        """`steps_alone`: what ranks do between two exchanges is their own; `begins`: the step with the first look at replicas."""
        self.idles = False
        """Whether the step is the others' alone, and this rank does not step its model."""
        self._in_step = source.in_step
        plan = source.plan(source.epochs.current)
        apart = may_differ(gradients_of(framework.parameters()), plan, source.policies)
        self._replicas = Replicas(framework, job, but=apart, options=not steps_alone, begins=begins)
        self._gradients = FirstGradients(framework, job)

    def among(self, framework: Framework, job: Job, source: ProgramSource, *, begins: int) -> Together:
        """The same for those that have met anew, who know already whose batches they train on."""
        self._gradients.end()
        made = Together(framework, job, source, begins=begins)
        made._gradients.end()
        return made

    def begin(self, step: int) -> None:
        """All ranks look anew, from that step on."""
        self._replicas.begin(step)

    def end(self) -> None:
        """The model trains no longer."""
        self._gradients.end()

    def vote(self, step: int) -> tuple[float, ...]:
        """A backward has ended: what `Votes.cast` takes, as `Replicas.vote`. All gates are open."""
        self._gradients.stepped(step)
        return self._replicas.vote(step, stale=self.idles) if self._in_step else ()

    def counted(self, votes: Ballot) -> None:
        """The step's votes are. ReplicaError: ranks differ."""
        self._replicas.counted(votes)
        self._gradients.counted()

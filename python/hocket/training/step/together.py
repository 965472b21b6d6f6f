"""Checks of a session while it trains: that ranks hold one model (`replicas`), and that they learn from batches of their own
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
    """Checks of one session among the ranks that have met."""

    def __init__(
        self,
        framework: Framework,
        job: Job,
        source: ProgramSource,
        *,
        begins: int = 1,
    ) -> None:
        """Start the checks. `begins`: first step that compares replicas."""
        self.idles = False
        """True if the step is the other ranks' alone, and this rank does not step its model."""
        self._in_step = source.in_step
        plan = source.plan(source.epochs.current)
        apart = may_differ(gradients_of(framework.parameters()), plan, source.policies)
        # Ranks that step alone may adapt their rates to their own data.
        options = None if plan.schedule.steps == "local" else framework.options
        self._replicas = Replicas(framework.looks, job, but=apart, options=options, begins=begins)
        self._gradients = FirstGradients(framework.looks, job)

    def among(self, framework: Framework, job: Job, source: ProgramSource, *, begins: int) -> Together:
        """Return the checks for ranks that have met anew and know already whose batches they train on."""
        self._gradients.end()
        made = Together(framework, job, source, begins=begins)
        made._gradients.end()
        return made

    def begin(self, step: int) -> None:
        """Compare replicas anew on all ranks, from that step on."""
        self._replicas.begin(step)

    def end(self) -> None:
        """Stop: the model trains no longer."""
        self._gradients.end()

    def vote(self, step: int) -> tuple[float, ...]:
        """Return this rank's `Replicas.vote` for `Votes.cast` after a backward, when all gates are open."""
        self._gradients.stepped(step)
        return self._replicas.vote(step, stale=self.idles) if self._in_step else ()

    def counted(self, votes: Ballot) -> None:
        """Check the step's votes, which are counted. ReplicaError: ranks differ."""
        self._replicas.counted(votes)
        self._gradients.counted()

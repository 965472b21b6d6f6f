"""Sessions of a model in an elastic job: one begins when the job starts or while it trains, and meets ranks that join."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from hocket.errors import EpochError, PeerError, RendezvousError
from hocket.members.member_messages import Regroup
from hocket.settings import Settings
from hocket.torch.forward_hooks import after_forward, before_forward
from hocket.torch.framework import Torch
from hocket.torch.member_buffers import BuffersBeforeForward, MemberBuffers
from hocket.torch.module_buffers import Keep
from hocket.torch.state_parts import TorchParts
from hocket.training.assemble.asked import Given
from hocket.training.assemble.newcomers import Late, Met, meeting, met, share_states
from hocket.training.assemble.start import elastic_session_of
from hocket.training.beside.spans import Spans
from hocket.training.elastic.commit import Members as Commit
from hocket.training.loop.loop import Loop
from hocket.training.process import Process
from hocket.training.programs.source import ProgramSource
from hocket.training.step.companion import Alone, MembersCompanion
from hocket.training.step.reducing import ReducingSession


class Members:
    """Session of one model, from its beginning."""

    def __init__(
        self,
        framework: Torch,
        parts: TorchParts,
        *,
        process: Process,
        settings: Settings,
        asked: Given,
        keep: Keep | None,
    ) -> None:
        """Prepare to begin. `parts`: the state, for ranks that join; `keep`: how buffers are kept equal; None: after each step."""
        self._framework, self._process, self._settings = framework, process, settings
        self._parts = parts
        self._asked, self._keep = asked, keep
        self._buffers: BuffersBeforeForward | None = None
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def begin(self, source: ProgramSource, spans: Spans | None) -> tuple[ReducingSession, Loop]:
        """Begin in a job whose ranks have all met."""
        session, _, loop = self._made(source, spans, None)
        self._process.begin()
        return session, loop

    def _made(
        self, source: ProgramSource, spans: Spans | None, found: Met | None
    ) -> tuple[ReducingSession, Commit, Loop]:
        """Make the session, its commit and its loop. `found`: what a joining rank has found in the job."""
        framework, process = self._framework, self._process
        loop = Loop(process.job)
        late = Late(
            lambda: framework.packed({"rates": framework.rates_of_groups(), "extra": loop.extras()}),
            lambda data: self._take(loop, data),
        )
        if found is not None:
            loop.come(found.standing.loop, found.standing.steps, found.holders)
            late.awaited(process, found.holders)
        session, commit = elastic_session_of(
            framework,
            source,
            process=process,
            companion=self._companion(process),
            spans=spans,
            loop=loop,
            parts=self._parts,
            ahead=None if found is None else found.ahead,
            steps=0 if found is None else found.standing.steps,
        )
        commit.meet = meeting(
            session,
            commit,
            framework,
            self._parts,
            process=process,
            settings=self._settings,
            asked=self._asked,
            loop=loop,
            late=late,
            companion=self._companion,
        )
        commit.before_forward = late.exchange
        framework.before_training_forward(late.exchange)

        def forward_begins() -> None:
            # Ranks may go where no program of the next step is launched.
            if commit.standing.owners:
                commit.backward_began()

        framework.before_training_forward(forward_begins)
        if self._keep == "before_forward":
            self._keep_before_forward(session, commit)
        return session, commit, loop

    def _keep_before_forward(self, session: ReducingSession, commit: Commit) -> None:
        def before() -> None:
            if self._buffers is not None and self._buffers.due:
                commit.standing.between_steps(self._buffers.exchange)

        def after() -> None:
            if self._buffers is not None:
                self._buffers.due = torch.is_grad_enabled() and session.communicates()

        for each in self._hooks:
            # Of a meeting that did not work.
            each.remove()
        model = self._framework.model
        self._hooks = [before_forward(model, before), after_forward(model, after)]

    def come(self, spans: Callable[[], Spans | None]) -> tuple[ReducingSession, Loop]:
        """Begin in a job that trains already. If a rank is lost during the meeting, the others meet once more, with this one.

        RendezvousError: this rank's model is another one.
        """
        process = self._process
        order: Regroup | None = None
        while True:
            try:
                if order is not None:
                    process.meet(order)
                found = met(
                    self._framework,
                    self._parts,
                    process=process,
                    settings=self._settings,
                    asked=self._asked,
                    standing=None,
                )
                # Later newcomers get the job's plan from this rank, too.
                self._asked = self._asked._replace(plan=found.standing.terms.plan)
                session, commit, loop = self._made(found.source, spans(), found)
                share_states(session, commit, found, self._parts)
                process.begin(steps=found.standing.steps)
                commit.after_step = partial(process.passage.settle, process.everyone)
                return session, loop
            except (EpochError, PeerError, RendezvousError) as error:
                if not isinstance(error, EpochError) and error.rank == process.job.rank:
                    # This rank made the mistake.
                    raise
                order = process.next_meeting(process.generation, error)

    def _companion(self, process: Process) -> MembersCompanion:
        if self._keep == "none":
            return Alone()
        if self._keep == "before_forward":
            self._buffers = BuffersBeforeForward(self._framework.model, process.job, process.engine)
            return self._buffers
        return MemberBuffers(self._framework.model, process.job, process.engine)

    def _take(self, loop: Loop, data: bytes) -> None:
        given = self._framework.unpacked(data)
        self._framework.set_rates_of_groups(given["rates"])
        loop.take(given["extra"])

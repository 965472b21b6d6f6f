"""Owners that update within `join`: a rank that has finished goes on owning. It makes each step that the others make, with their
numbers of the optimizer's groups, and clips where they do. So it has the others' parameters all the time."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from hocket.errors import UsageError
from hocket.torch.division import clip_divided
from hocket.torch.framework import Torch
from hocket.torch.join_events import CLIP, NUMBERED, STEP, Events
from hocket.training.step.reducing import ReducingSession


class JoinedOwners:
    """Steps and clips of one model, which all ranks are told of."""

    def __init__(self, framework: Torch, session: ReducingSession, events: Events) -> None:
        """Hear of steps and clips from now on."""
        self._framework, self._session, self._events = framework, session, events
        self._active: Sequence[int] | None = None
        """Ranks that had a batch in the last step; None: there was none."""
        self._follows = False
        """True while this rank, which has finished, makes a step of the others."""
        self._numbers: str | None = None
        """Numbers of the optimizer's groups that ranks which have finished know."""
        self._hook = framework.optimizer.register_step_pre_hook(lambda *_: self._on_step())
        session.owners.in_join = self._on_clip

    def __bool__(self) -> bool:
        """Return whether owners update anything."""
        return bool(self._session.owners)

    def step_ended(self, active: Sequence[int]) -> None:
        """Note which ranks had a batch."""
        if active != self._active:
            self._numbers = None
        self._active = active

    def take_part(self) -> None:
        """Clip or step as the others do, after this rank has finished."""
        framework, events = self._framework, self._events
        events.open = False
        if events.kind == CLIP:
            max_norm, norm_type = map(float, events.of_last(None))
            numbers = self._session.owners.numbers
            clip_divided(framework.model.parameters(), framework.division, numbers, max_norm, norm_type)
            return
        if events.kind == NUMBERED:
            self._take(events.of_last(None))
        self._follows = True
        try:
            framework.step()
        finally:
            self._follows = False

    def equal(self, source: int) -> None:
        """Take the source's numbers: all ranks have finished, with equal parameters, and each has the state of what it owns."""
        job = self._session.job
        told = job.store.gather("join", job.rank, job.world, self._packed(), job.settings.timeout_s)
        self._take(told[source])

    def close(self) -> None:
        """Hear of nothing more."""
        self._hook.remove()
        self._session.owners.in_join = None

    def _on_step(self) -> None:
        """Tell that the optimizer steps, and ranks that have finished with which numbers."""
        if not self or self._follows:
            return
        few = self._active is not None and len(self._active) < self._session.job.world
        numbers = self._packed() if few else None
        self._meet(STEP if numbers == self._numbers else NUMBERED)
        if self._events.kind == NUMBERED:
            self._numbers = numbers
            self._events.of_last(numbers)

    def _on_clip(self, max_norm: float, norm_type: float) -> None:
        self._meet(CLIP)
        if self._events.few:
            self._events.of_last([repr(float(max_norm)), repr(float(norm_type))])

    def _meet(self, kind: int) -> None:
        if self._events.open:
            raise UsageError(
                "join: the optimizer steps, or gradients are clipped, between a forward and its backward\n"
                "hint: step after the backward, and torch.no_grad() around forwards without one"
            )
        self._events.tell(kind)
        self._events.wait()
        self._events.open = False

    def _packed(self) -> str:
        return base64.b64encode(self._framework.packed(self._framework.rates_of_groups())).decode()

    def _take(self, packed: str) -> None:
        framework = self._framework
        framework.set_rates_of_groups(framework.unpacked(base64.b64decode(packed)))

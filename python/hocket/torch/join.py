"""`join`: ranks with unequal numbers of batches train together; finished ranks contribute zeros until all have.

The semantics are those of `torch.distributed.algorithms.join`. At the start of each step ranks exchange which of them
still have batches. A rank without one takes part in the reductions with zeros. In the end all ranks continue from the
state of one that finished last.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

import torch

from hocket.errors import UsageError
from hocket.torch.forward_hooks import before_forward as hooked
from hocket.torch.framework import Torch
from hocket.torch.join_events import BATCH, FINISHED, Events
from hocket.torch.join_owners import JoinedOwners
from hocket.torch.module_buffers import BeforeForward, Buffers
from hocket.torch.weighing import scaled
from hocket.training.checkpoint.replicate import replicate
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.step.reducing import ReducingSession

LOOK_S = 0.0005
"""Time between looks at other models whose steps a finished rank is to make, while it waits for one of them."""


class Window:
    """One model between entering and leaving `join`: its session's `Companion` in place of the buffers'."""

    barrier = True
    """True: finished ranks reduce at once, so the others do, too."""
    meets = False

    def __init__(
        self,
        framework: Torch,
        session: ReducingSession,
        buffers: Buffers,
        before_forward: BeforeForward | None,
        *,
        by_initial_world: bool,
        throws: bool,
    ) -> None:
        """Enter; every rank does so before its first batch.

        `before_forward`: sends buffers outside of `join`, if configured so; None: nothing does.
        """
        self._factor = 1.0
        """Factor of the mean over all ranks in this step."""
        self._framework, self._session = framework, session
        self._buffers, self._before_forward = buffers, before_forward
        self._by_initial_world, self._throws = by_initial_world, throws
        self._buffers_sent = False
        self._counted = False
        self._before: list[int] | None = None
        self._events = Events(session.job, session.engine)
        self.owners = JoinedOwners(framework, session, self._events)
        """Owners that update, if there are any."""
        self._hook = hooked(framework.model, self._on_forward)
        session.companion = self
        if before_forward is not None:
            before_forward.suspended = True

    def begin(self) -> None:
        """Announce that this rank has a batch."""
        self.announce()

    def end(self) -> bool:
        """Return False, for no meeting: buffers were sent before forward."""
        return False

    def launched(self, *, waits: bool) -> None:  # noqa: ARG002  # it always does
        """Learn which ranks had a batch, before sums are used."""
        self.active()

    def arrive(self) -> None:
        """Do nothing."""

    def meet(self) -> None:
        """Do nothing."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """Scale to the mean of the ranks that count."""
        if self._factor == 1:
            return
        scaled(self._framework.trained, bucket, self._factor)

    def announce(self, *, active: bool = True) -> None:
        """Begin a step, with a batch or without, and tell the others; each step counts once."""
        if not self._events.open:
            if self.owners:
                # Ranks that have finished wait for the values of the last step.
                self._session.finish_step()
            self._events.tell(BATCH if active else FINISHED)

    def active(self) -> list[int]:
        """Return the ranks that have a batch in this step."""
        if not self._counted:
            self._events.wait()
            self._counted = True
            if self._events.ranks and not self._by_initial_world:
                self._factor = self._session.job.world / len(self._events.ranks)
        return self._events.ranks

    def step_ended(self) -> None:
        """Reset what belongs to a step; the next one is announced separately."""
        self._before = self.active()
        self.owners.step_ended(self._before)
        self._events.open = self._counted = self._buffers_sent = False
        self._factor = 1.0

    def retire(self) -> None:
        """Raise UsageError: ranks that have finished would not hear of it."""
        raise UsageError(
            "distribute: the model trains within hk.join\nhint: distribute it again after the block"
        )

    def idle(self, windows: Sequence[Window]) -> bool:
        """Take part in one step of the others, after this rank has finished. `windows`: all models in which it does so.

        Returns False if all ranks have finished; all then continue from the same state.
        """
        session = self._session
        session.settle()
        while True:
            self.announce(active=False)
            self._wait([each for each in windows if each is not self and each.owners])
            if self._events.kind in (FINISHED, BATCH):
                break
            self.owners.take_part()
        active = self.active()
        if not active:
            self._go_on_together()
            return False
        if self._throws:
            raise self._early([rank for rank in range(session.job.world) if rank not in active])
        self._send_buffers(active)
        session.idle_step()
        return True

    def follow(self) -> None:
        """Take part in a step of the others if they make one now, after this rank has finished."""
        self.announce(active=False)
        if not self._counted and self._events.come:
            self._events.wait()
            if self._events.kind not in (FINISHED, BATCH):
                self.owners.take_part()

    def close(self) -> None:
        """Remove hooks and unload programs; the same on all ranks."""
        self._hook.remove()
        self.owners.close()
        self._session.companion = self._buffers
        if self._before_forward is not None:
            self._before_forward.suspended = False

    def unload(self) -> None:
        """Unload the program, after a window in which every rank waited for each step that it announced."""
        self._events.unload()

    def _on_forward(self) -> None:
        session = self._session
        if not torch.is_grad_enabled() or not session.communicates():
            return
        self.announce()
        if self._throws and len(self.active()) < session.job.world:
            raise self._early([rank for rank in range(session.job.world) if rank not in self.active()])
        if self._buffers.kept:
            self._send_buffers(self.active())

    def _wait(self, others: Sequence[Window]) -> None:
        """Wait until all have told what they do. `others`: models in which they may step before that."""
        session = self._session
        deadline_s = time.monotonic() + session.job.settings.timeout_s
        while others and not self._events.come and time.monotonic() < deadline_s:
            for each in others:
                each.follow()
            # There are no such messages: the call raises when the job has failed.
            session.engine.next_message(LOOK_S)
        self._events.wait()

    def _send_buffers(self, active: list[int]) -> None:
        """Send buffers, before forward, from the highest rank that has a batch."""
        if not self._buffers_sent:
            self._buffers.send(active[-1], everything=True)
            self._buffers_sent = True

    def _go_on_together(self) -> None:
        session = self._session
        if self._before is None:
            return
        source, all_last = self._before[-1], len(self._before) == session.job.world
        if not all_last and not self.owners:
            replicate(self._framework, session.job, session.engine, (source,))
            self._buffers.equal()
        else:
            self._buffers.send(source, everything=True)
        if not all_last and self.owners:
            self.owners.equal(source)
        self._buffers.source = 0
        session.updates.drop()

    def _early(self, finished: list[int]) -> UsageError:
        job = self._session.job
        who = ", ".join(f"rank {rank} on {job.hosts[rank]}" for rank in finished)
        return UsageError(
            f"{who} ran out of batches after {self._session.iteration} iterations, others have more\n"
            "hint: throw_on_early_termination=False goes on without"
        )


@contextlib.contextmanager
def joined_training(windows: list[Window]) -> Iterator[None]:
    """Train in the body; then this rank takes part in the remaining steps of others.

    An error of the body propagates unchanged.
    """
    try:
        yield
        waiting = list(windows)
        while waiting:
            waiting = [each for each in waiting if each.idle(waiting)]
        for each in windows:
            each.unload()
    finally:
        for each in windows:
            each.close()

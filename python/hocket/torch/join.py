"""`join`: ranks with unequal numbers of batches train together; finished ranks contribute zeros until all have.

The semantics are those of `torch.distributed.algorithms.join`. At the start of each step ranks exchange which of them
still have batches. A rank without one takes part in the reductions with zeros. In the end all ranks continue from the
state of one that finished last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from hocket.errors import UsageError
from hocket.planning.compile import votes_program
from hocket.torch.forward_hooks import before_forward as hooked
from hocket.torch.framework import Torch
from hocket.torch.module_buffers import BeforeForward, Buffers
from hocket.training.checkpoint.replicate import replicate
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.step.reducing import ReducingSession


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
        self._announced = self._counted = False
        self._before: list[int] | None = None
        world = session.job.world
        memory = session.engine.allocate(world * 4)
        self._values = np.frombuffer(memoryview(memory), dtype=np.float32)
        self._program = session.engine.load(
            votes_program(session.job.hosts, world), {0: (memory, 0)}, priority=0, label="join"
        )
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
        bucket.elements.mul_(self._factor)
        for gradient in (self._framework.trained[name].grad for name in bucket.names if bucket.sparse):
            if gradient is not None:
                gradient.mul_(self._factor)

    def announce(self, *, active: bool = True) -> None:
        """Begin a step, with a batch or without, and tell the others; each step counts once."""
        if not self._announced:
            self._values[:] = 0
            self._values[self._session.job.rank] = active
            self._session.engine.launch(self._program)
            self._announced = True

    def active(self) -> list[int]:
        """Return the ranks that have a batch in this step."""
        if not self._counted:
            self._session.engine.wait(self._program, self._session.job.settings.timeout_s)
            self._counted = True
            found = [int(rank) for rank in np.flatnonzero(self._values)]
            if found and not self._by_initial_world:
                self._factor = self._session.job.world / len(found)
        return [int(rank) for rank in np.flatnonzero(self._values)]

    def step_ended(self) -> None:
        """Reset what belongs to a step; the next one is announced separately."""
        self._before = self.active()
        self._announced = self._counted = self._buffers_sent = False
        self._factor = 1.0

    def retire(self) -> None:
        """Raise UsageError: ranks that have finished would not hear of it."""
        raise UsageError(
            "distribute: the model trains within hk.join\nhint: distribute it again after the block"
        )

    def idle(self) -> bool:
        """Take part in one step of the others, after this rank has finished.

        Returns False if all ranks have finished; all then continue from the same state.
        """
        session = self._session
        session.settle()
        self.announce(active=False)
        active = self.active()
        if not active:
            self._go_on_together()
            return False
        if self._throws:
            raise self._early([rank for rank in range(session.job.world) if rank not in active])
        self._send_buffers(active)
        session.idle_step()
        return True

    def close(self) -> None:
        """Remove hooks and unload programs; the same on all ranks."""
        self._hook.remove()
        self._session.companion = self._buffers
        if self._before_forward is not None:
            self._before_forward.suspended = False

    def unload(self) -> None:
        """Unload the program, after a window in which every rank waited for each step that it announced."""
        self._session.engine.unload(self._program)

    def _on_forward(self) -> None:
        session = self._session
        if not torch.is_grad_enabled() or not session.communicates():
            return
        self.announce()
        if self._throws and len(self.active()) < session.job.world:
            raise self._early([rank for rank in range(session.job.world) if rank not in self.active()])
        if self._buffers.kept:
            self._send_buffers(self.active())

    def _send_buffers(self, active: list[int]) -> None:
        """Send buffers, before forward, from the highest rank that has a batch."""
        if not self._buffers_sent:
            self._buffers.send(active[-1], everything=True)
            self._buffers_sent = True

    def _go_on_together(self) -> None:
        session = self._session
        if self._before is None:
            return
        source = self._before[-1]
        if len(self._before) < session.job.world:
            replicate(self._framework, session.job, session.engine, (source,))
            self._buffers.equal()
        else:
            self._buffers.send(source, everything=True)
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
            waiting = [each for each in waiting if each.idle()]
        for each in windows:
            each.unload()
    finally:
        for each in windows:
            each.close()

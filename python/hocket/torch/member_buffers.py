"""Equality of a model's buffers in an elastic job: all members have the first member's, after each step in which buffers change
(`MemberBuffers`), or before each forward (`BuffersBeforeForward`).

After a step, buffers travel when all sums of the step have arrived. A step that a loss interrupts sends them again, from the member
that is first then; no member takes what arrived before the step is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hocket import _native
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.planning.compile import broadcast_program
from hocket.torch.buffer_memory import Mirror, named_buffers
from hocket.training.step.companion import Alone


class MemberBuffers(Alone):
    """Buffers of one model; a session's `MembersCompanion`."""

    meets = True

    def __init__(self, model: torch.nn.Module, job: Job, engine: _native.Engine) -> None:
        """Start from equal replicas of the model."""
        self._engine = engine
        self._mirror = Mirror(model, named_buffers(model).keys(), frozenset(), engine.allocate)
        self._arrived = False
        self.load(job)
        self._torn = False
        """True if members may have received different buffers from one that was lost."""

    def load(self, job: Job) -> None:
        """Load the broadcast: the first of these members sends from now on."""
        self._job, self._torn = job, True
        if self._mirror.places:
            memory = self._mirror.memory
            broadcast = broadcast_program(job.world, self._mirror.size_bytes)
            self._program = self._engine.load(broadcast, {0: (memory, 0)}, priority=0, label="buffers")

    def end(self) -> bool:
        """Note that backward is over, and return whether buffers are to travel."""
        self._arrived = False
        current = self._current()
        return self._sends and bool(current) and (self._torn or not self._mirror.holds(current))

    def meet(self) -> None:
        """Exchange buffers, as all members are here; EpochError: a member is lost."""
        if not self._mirror.places:
            return
        if self._sends:
            self._mirror.put(self._current())
        self._engine.launch(self._program)
        self._engine.wait(self._program, self._job.settings.timeout_s)
        self._arrived = True

    def step_ended(self) -> None:
        """Take what arrived in this step, which is complete."""
        if not self._arrived:
            return
        self._arrived = self._torn = False
        # The member that sends now may have received them from one that was lost since.
        self._mirror.take(self._current())

    @property
    def _sends(self) -> bool:
        return self._job.rank == 0

    def _current(self) -> Sequence[torch.Tensor | None]:
        """Return buffers without temporary ones that this rank has made in another shape: each rank has its own."""
        current = self._mirror.current()
        if current is None:
            raise UsageError(
                "an elastic job keeps the buffers that a model begins with, and this one has others now, or of other shapes\n"
                'hint: `hk.distribute(..., buffers="none")`: each rank has its own'
            )
        return current.tensors


class BuffersBeforeForward(MemberBuffers):
    """Buffers that travel before each forward for which DistributedDataParallel's would; see `module_buffers.BeforeForward`.

    A loss in the middle of it repeats it among those that remain. Members that had all buffers by then go on with their forward,
    and send what they got once more when they repeat the step.

    Attributes:
        due: the next forward begins with an exchange.
    """

    meets = False

    def __init__(self, model: torch.nn.Module, job: Job, engine: _native.Engine) -> None:
        """Start from equal replicas of the model."""
        self.due = True
        self._launched = False
        super().__init__(model, job, engine)

    def load(self, job: Job) -> None:
        """Load the broadcast, as after a step."""
        super().load(job)
        self._launched = False

    def exchange(self) -> None:
        """Take the first member's buffers, as a forward begins; EpochError: a member is lost."""
        if not self._mirror.places:
            return
        if self._launched:
            # Its memory is still read from.
            self._wait()
        if self._sends:
            self._mirror.put(self._current())
        self._launch()
        self._wait()
        if not self._sends:
            self._mirror.take(self._current())
        self._arrived = True

    def end(self) -> bool:
        """Send buffers again in a step that is repeated, for members that have not got them. Request no meeting."""
        if self._arrived and not self._launched:
            self._launch()
        return False

    def step_ended(self) -> None:
        """Note that all members have been through their forward."""
        self._arrived = False

    def _launch(self) -> None:
        self._engine.launch(self._program)
        self._launched = True

    def _wait(self) -> None:
        self._engine.wait(self._program, self._job.settings.timeout_s)

"""Session for local SGD: ranks train alone and exchange parameters every few steps. Buckets hold the parameters themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from hocket import _native
from hocket.errors import UsageError
from hocket.policy.policy import Value
from hocket.refusals import JOIN, PARAMETERS, refused
from hocket.training.checkpoint import states
from hocket.training.checkpoint.resume import resume
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import made, read, received
from hocket.training.memory.framework import Framework
from hocket.training.memory.gradients import gradients_of
from hocket.training.step.commit import ends_together
from hocket.training.step.companion import Companion
from hocket.training.step.owners import Owners
from hocket.training.step.place import Place
from hocket.training.step.together import Together
from hocket.training.step.votes import Votes


class ParameterSession:
    """Session that hooks the optimizer's step. Parameters become views of buckets and keep their values."""

    counts_steps = True
    owners: Owners | None = None

    def __init__(
        self,
        framework: Framework,
        place: Place,
        *,
        companion: Companion,
    ) -> None:
        """Make and load the buckets. Replicas are equal at the start, so initial state is the same on all ranks."""
        (policy,) = place.source.policies
        if policy.every < 1:
            raise UsageError("parameters are exchanged once in `every` steps, at least 1")
        self.job, self.engine, self.source, self.spans = place.job, place.engine, place.source, place.spans
        self._every = policy.every
        self._framework, self._companion = framework, companion
        self._loaded, self._libraries = place.loaded, place.libraries
        place.lanes.serve(framework.device)
        self._steps = 0
        self._votes = Votes(self.engine, self.job.hosts, list(gradients_of(framework.parameters())))
        self.buckets: list[LoadedBucket] = []
        self._load()
        self._together = Together(framework, self.job, self.source, steps_alone=True)
        self._look: tuple[float, ...] = ()
        framework.on_step(self._on_step)

    @property
    def programs(self) -> list[int]:
        """Number of each bucket's program."""
        return [bucket.program for bucket in self.buckets]

    @property
    def _memories(self) -> list[_native.Memory]:
        return [bucket.memory for bucket in self.buckets]

    def start(self) -> None:
        """Start the threads beside training."""
        self.source.start_timer()

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Return an empty context: gradients are not communicated anyway."""
        return contextlib.nullcontext()

    def communicates(self) -> bool:
        """Return True: every forward belongs to a step."""
        return True

    def record(self, name: str, value: float) -> None:
        """Record a statistic for the policy."""
        self.source.record(name, value)

    def observe(self, *, loss: float | None = None, curvature: float | None = None) -> None:
        """Do nothing: no gradients are merged or late."""

    def agreed(self) -> Mapping[str, Value]:
        return self.source.agreed()

    def leave(self) -> None:
        raise ends_together()

    def finish_step(self) -> None: ...

    def settle(self) -> None:
        """Do nothing: gradients are this rank's own, and final."""

    def flush(self) -> None:
        """Do nothing: each step was applied."""

    def saved(self) -> SavedSession:
        """Return the state, with the number of steps taken: parameters are exchanged every few of them."""
        held = states.held(self.buckets, self.engine, self.job.rank)
        return SavedSession.of(held, self.job, steps=self._steps)

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        resume(saved, self.buckets, self.engine, self.job, strict=strict)
        self._steps = saved.steps

    def joinable(self) -> None:
        """Raise UsageError: `join` is not possible."""
        raise refused(JOIN, PARAMETERS, policy="local SGD", contract="parameters")

    def forward_begins(self, *, syncs: bool) -> None:
        """Do nothing: backward does not communicate anyway."""

    def retire(self) -> None:
        """End. Parameters stay where they are, each rank's own."""
        self._companion.retire()
        self.source.retire()
        for each in self.buckets:
            self._libraries.forget(each.program)
            self.engine.unload(each.program)
        self._votes.unload()
        self._together.end()
        self.buckets = []

    def close(self) -> None:
        """Stop the threads beside training."""
        self.source.stop()

    def _load(self) -> None:
        old = self.buckets
        buckets = self.source.buckets()
        number = self.source.epochs.current.number
        self.buckets = bucket_memory.load(
            buckets,
            self.engine,
            self._framework.array,
            epoch=number,
            rank=self.job.rank,
            device=self._framework.device,
        )
        self._framework.hold_parameters(self.buckets)
        read(self._framework.device, self._memories)
        bucket_memory.start_states(self.buckets, self.engine)
        states.put(states.held(old, self.engine, self.job.rank), self.buckets, self.engine, self.job.rank)
        for each in self.buckets:
            self._libraries.learn(each.program, each.launches[0].compiled.program)
        for each in old:
            self._libraries.forget(each.program)
            self.engine.unload(each.program)
        self._loaded(self.source, self.buckets)

    def _on_step(self) -> None:
        self._steps += 1
        if self._steps % self._every:
            return
        began_ns = _native.now_ns()
        timeout_s = self.job.settings.timeout_s
        self._framework.hold_parameters(self.buckets)
        self._companion.begin()
        self._votes.cast(self.source.epochs.vote(), [], meet=self._companion.end(), look=self._look)
        self._libraries.expect(self.programs)
        made(self._framework.device, self._memories)
        for program in self.programs:
            self.engine.launch(program)
        self._companion.launched(waits=True)
        for program in self.programs:
            self.engine.wait(program, timeout_s)
        received(self._framework.device, self._memories)
        begins = self.source.decide(self._votes.count(timeout_s))
        self._together.counted(self._votes)
        # Between two exchanges ranks may differ: this digest of what they hold now travels with the next one.
        self._look = self._together.vote(self._steps // self._every)
        self._companion.arrive()
        if self._votes.meet:
            self._companion.meet()
        ended_ns = _native.now_ns()
        self.source.record("wait_time", (ended_ns - began_ns) * 1e-9)
        if self.spans is not None:
            self.engine.mark("wait", self._steps - 1, began_ns, ended_ns)
        if begins:
            self._load()

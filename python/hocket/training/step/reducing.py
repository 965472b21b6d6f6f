"""Session of a model whose gradients are reduced: what its script may ask of the step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from hocket.errors import UsageError
from hocket.policy.policy import Value
from hocket.refusals import GRADIENTS, NO_MEANS, SERVERS, SHARES, TURNS, refused
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.step import saving
from hocket.training.step.companion import Companion
from hocket.training.step.joinable import check_joinable
from hocket.training.step.place import Place
from hocket.training.step.step import Step
from hocket.training.step.weighted import Weighted


class ReducingSession(Step):
    """One distributed model, as its script knows it."""

    @property
    def counts_steps(self) -> bool:
        return self.delays is not None or self.commit.counts_steps

    def start(self) -> None:
        """Start the threads beside training."""
        self.source.start_timer()

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        return self.accumulation.no_sync()

    def forward_begins(self, *, syncs: bool) -> None:
        self.progress.forward_began()
        self.accumulation.forward_begins(syncs=syncs)

    def communicates(self) -> bool:
        """Return whether a backward now would communicate."""
        return self.updates.readiness.enabled

    def observe(
        self, *, loss: float | None = None, curvature: float | None = None, weight: float | None = None
    ) -> None:
        self.gauge.observe(loss=loss, curvature=curvature)
        if loss is not None and self.delays is not None:
            self.delays.logged(loss)
        local = self.updates.local
        if weight is not None and local is not None and local.weighing is not None:
            local.weighing.logged(weight)

    def weigh(self, scale: Callable[[LoadedBucket, float], None]) -> Weighted | None:
        """Let each rank's gradients count by its samples; return what is to be told of batches. None: they count as they are, since
        ranks step apart. `scale` multiplies a bucket's means. UsageError: that is not possible here."""
        if self.accumulation.weighted is None:
            local = self.updates.local
            if local is not None and local.weighing is not None:
                return None
            self._check_weighs()
            self.accumulation.weighted = Weighted(scale)
        return self.accumulation.weighted

    def _check_weighs(self) -> None:
        """Raise UsageError if ranks' gradients cannot count by their samples."""
        if self.delays is not None:
            raise refused(SHARES, TURNS)
        if self.source.served is not None:
            raise refused(SHARES, SERVERS)
        policy = next((each for each in self.source.policies if each.contract != "mean"), None)
        if policy is not None:
            raise refused(SHARES, NO_MEANS, policy=type(policy).__name__, contract=f"`{policy.contract}`")

    def agreed(self) -> Mapping[str, Value]:
        return self.source.agreed()

    def leave(self) -> None:
        self.commit.leave()

    def settle(self) -> None:
        """Open all gates. UsageError: gradients do not come back."""
        if self.source.served is not None:
            hint = "clip without parameter servers, or scale the loss"
            what = "gradients are not there to be clipped: they were pushed"
            raise refused(SERVERS, GRADIENTS, what=what, hint=hint)
        self.finish_step()

    def flush(self) -> None:
        """Reduce, await and apply all gradients that were made and not applied; the optimizer steps once for each update."""
        with self.stepping.between():
            self._flush()

    def _flush(self) -> None:
        if self.delays is not None:
            self.delays.check_applied("flush")
        self.finish_step()
        if self.delays is None:
            return
        self.delays.saves.settled()
        if self.updates.local is not None:
            self.updates.local.check_even("flush", uneven=self.stepping.stand_in is not None)
        else:
            # What the last step applied may still be there.
            self.updates.drop()
        with self.delays.flushing(), self.commit.flushing() as rounds:
            for due in rounds:
                self.give(due)
                if self.updates.own is None:
                    self.framework.step()
                if self.updates.local is None:
                    self.updates.drop()
            for _ in range(self.delays.flushed()):
                if self.spans is not None:
                    self.spans.updated()
        self.loading.begin_anew()

    def saved(self) -> SavedSession:
        """Return the state with gradients made and not applied. UsageError: a step is missing, or another plan begins."""
        with self.stepping.between():
            return saving.saved(self)

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        """Restore the state. UsageError: a backward has begun, or turns are open and belong to another plan or job."""
        if self.delays is not None and (self.updates.readiness.made or self._under_way):
            raise UsageError("load_state_dict: a backward has begun\nhint: load before the first one")
        if (delays := saving.restore(self, saved, strict=strict)) is not None:
            self.loading.count_gradients(saved=(delays.turns, delays.reduced))

    def joinable(self) -> ReducingSession:
        """Return this session; UsageError: ranks without batches cannot join its steps."""
        self.commit.check_joinable()
        check_joinable(self.source, merges=self.delays is not None)
        return self

    def retire(self) -> None:
        self.commit.check_retires()
        self.source.retire()
        self.companion.retire()
        self.flush()
        self.stepping.close()
        self.owners.release()
        self.source.dismiss()
        for each in self.launches:
            self.place.libraries.forget(each.program)
        bucket_memory.unload(self.launches, self.engine)
        self.loading.end_inside()
        self.agreement.end()
        self.updates.clear()
        self.loading.gates = None

    def close(self) -> None:
        """Apply outstanding updates, and stop the threads beside training. Gradients that are not applied are reported."""
        self.stepping.close()
        self.commit.close()
        if self.delays is not None:
            self.delays.saves.ended(self.job.rank)
            if self.spans is not None:
                self.delays.saves.write(self.spans.directory, self.job.rank, self.loading.extra_bytes)
        self.source.leave()
        self.source.stop()

    def go_on_in(self, place: Place, companion: Companion) -> None:
        """Go on at another place in the job, among ranks that have met anew; no turn is open or in flight."""
        together, self.companion = self.agreement.together, companion
        # Owners look at the gradients of the last step.
        moves = bool(self.owners)
        self.updates.close()
        self.updates.clear()
        self._take(place)
        # Loading may fail, and this be called again.
        self.agreement.together = together
        self.commit.begin(self)
        self.loading.load(moves=moves)
        self.agreement.together = together.among(
            self.framework, self.job, self.source, begins=self.iteration + 1
        )

    def idle_step(self) -> None:
        """Take part in a step of the other ranks to which this rank has nothing to add."""
        self.updates.drop()
        self.begin_iteration()
        self.agreement.together.idles = True
        self.end_iteration(barrier=True)
        self.agreement.together.idles = False

"""Batches of unequal sizes: each rank's gradients count by its share of a batch's samples, so that the mean of all ranks is that of
one process with the whole batch.

All ranks know how many samples each of them has. A gradient is multiplied where backward makes it, before it is sent: by this
rank's samples times the number of ranks over all samples. Then the mean of ranks, which programs compute, is that of samples.
These weights travel with the votes of a step, and each rank compares them with what it has computed for the others. If ranks are
lost, their weights are missing, and the mean of the others is brought to the sum of theirs.

    samples 6, 2      weights 1.5, 0.5      (1.5 g + 0.5 h) / 2  =  (6 g + 2 h) / 8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.training.memory.buckets import LoadedBucket

UNWEIGHTED = -1.0
"""Vote of a rank whose gradients count as they are."""
EQUAL = 1e-5
"""Difference below which weights of a batch are equal: votes are f32."""

Counts = Mapping[int, int]
"""Number of samples in a batch, by member."""


class Weighted:
    """Weights of one session's ranks.

    Attributes:
        factor: what gradients are multiplied with in backward.
    """

    def __init__(self, scale: Callable[[LoadedBucket, float], None]) -> None:
        """Begin without batches. `scale` multiplies a bucket's means."""
        self.factor = 1.0
        self._scale = scale
        self._batches: list[Counts] = []
        """Batches since the last step."""
        self._step: int | None = None
        self._voted = 0
        """Number of batches in the step that was voted on last."""
        self._weights: dict[int, float] = {}
        """Weights of all members in that step."""

    def batch(self, counts: Counts, me: int, *, held: bool) -> None:
        """Note that ranks have got a batch. `held`: gradients of those before it are in no step yet."""
        if not held:
            self._batches = []
        self._batches.append(counts)
        self.factor = _weight(counts, me)

    def end(self) -> None:
        """Note that what follows is not of these batches."""
        self._batches, self.factor = [], 1.0

    def vote(self, step: int, me: int) -> float:
        """Return this rank's weight in a step; asked again where the step is made again."""
        if step != self._step:
            self._step, self._voted = step, len(self._batches)
            members = self._batches[-1] if self._batches else ()
            self._weights = {each: sum(_weight(one, each) for one in self._batches) for each in members}
        return self._weights.get(me, UNWEIGHTED)

    def counted(self, told: Mapping[int, float], job: Job, step: int) -> None:
        """Compare the weights that ranks have told, by rank, in that step. UsageError: one has another than follows from its
        batches here."""
        known = {rank: self._weights.get(job.members[rank], UNWEIGHTED) for rank in told}
        limit = EQUAL * max(1, self._voted)
        wrong = [rank for rank, weight in told.items() if abs(weight - known[rank]) > limit]
        if wrong:
            differing = "; ".join(
                f"rank {rank} on {job.hosts[rank]} {_words(told[rank])}, and by rank {job.rank}'s batches {_words(known[rank])}"
                for rank in wrong
            )
            raise UsageError(
                f"ranks are at other batches in step {step}: {differing}\n"
                "hint: where hk.batches has shares, all ranks take each batch, and make the same steps with it"
            )

    def arrived(self, bucket: LoadedBucket, present: Collection[int]) -> None:
        """Bring a mean over the members that are present to that of their samples."""
        whole = math.fsum(self._weights.get(member, 0.0) for member in present)
        factor = self._voted * len(present) / whole if whole > 0 else 1.0
        if abs(factor - 1.0) > EQUAL * EQUAL:
            self._scale(bucket, factor)


def _weight(counts: Counts, member: int) -> float:
    return counts.get(member, 0) * len(counts) / sum(counts.values())


def _words(weight: float) -> str:
    return "has none with shares" if weight == UNWEIGHTED else f"counts {weight:.4g} times"

"""Memory of gradients and of their sums, as a field of a session: in one place (`Memory`), or apart (`training.step.apart`)."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import CompiledBucket, LoadedBucket
from hocket.training.memory.framework import Framework
from hocket.training.step.place import Place


class Memory:
    """Sums lie where backward has made the gradients: nothing is copied."""

    def __init__(self, *, told_apart: bool) -> None:
        """`told_apart`: sums have arrays of their own, so that a gradient which was added to one is noticed."""
        self._told_apart = told_apart

    @property
    def apart(self) -> bool:
        """True if gradients stay as they are while they are summed."""
        return False

    def placed(
        self,
        buckets: Sequence[CompiledBucket],
        place: Place,
        framework: Framework,
        slots: Sequence[int],
        before: Sequence[LoadedBucket],
    ) -> list[LoadedBucket]:
        """Load the programs of the epoch in force over memory with so many slots by bucket; `before`: buckets until now."""
        return bucket_memory.load(
            buckets,
            place.engine,
            framework.array,
            epoch=place.source.epochs.current.number,
            rank=place.job.rank,
            slots=slots,
            before=before,
            device=framework.device,
        )

    def sums(self, placed: Sequence[LoadedBucket], framework: Framework) -> list[tuple[LoadedBucket, ...]]:
        """Return by arena and slot where sums lie."""
        if not self._told_apart:
            return [bucket.slots for bucket in placed]
        array = framework.array
        return [tuple(bucket_memory.again(slot, array) for slot in bucket.slots) for bucket in placed]

"""Means of merged or late gradients while they are due: arrays that differ from those that backward adds to.

A mean lies in a slot of its bucket. Its array is not the slot's own, so that a gradient that was added to the mean is noticed: it
would be applied twice. Zeros that a script has put in the place of the mean are a third array, to which backward may add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.framework import Framework


class Means:
    """Means of all arenas in an epoch; those of one slot are `of[arena][slot]`."""

    def __init__(self, framework: Framework, of: Sequence[Sequence[LoadedBucket]]) -> None:
        """Begin with no mean due."""
        self.of = of
        self._framework = framework
        self._zeros: list[list[LoadedBucket]] = []
        self._places = {
            name: (at, index) for at, (first, *_) in enumerate(of) for index, name in enumerate(first.names)
        }

    def is_due(self, name: str) -> bool:
        """Return whether the gradient is such a mean, perhaps plus an addition of backward's."""
        gradient = self._framework.gradient(name)
        at, index = self._places[name]
        return gradient is not None and any(gradient is mean.views[index] for mean in self.of[at])

    def zeroed(self, names: Iterable[str], shown: Mapping[int, int]) -> None:
        """Note that a script has filled these gradients with zeros. `shown`: by arena, the slot whose mean the script saw."""
        zeroed = set(names)
        if not self._zeros:
            array = self._framework.array
            self._zeros = [[bucket_memory.again(mean, array) for mean in own] for own in self.of]
        for at, slot in shown.items():
            self._framework.show(self._zeros[at][slot], zeroed)

    def moved(self, buckets: Sequence[LoadedBucket]) -> None:
        """Show means that were applied, which have moved to these buckets, where sums lie first."""
        there = {name for name in self._places if self._framework.gradient(name) is not None}
        for bucket, (first, *_) in zip(buckets, self.of, strict=True):
            if first.memory is bucket.memory:
                self._framework.show(first, there)
                continue
            for name, view in zip(first.names, first.views, strict=True):
                if name in there:
                    self._framework.adopt(name, view)

"""Means of merged or late gradients while they are due: arrays by which one can tell them from what backward adds to.

A mean lies in a slot of its bucket. Its array is another one than the slot's own, so that a gradient that was added to it is
noticed: it would be applied twice. Zeros that a script has put in the place of the mean are a third one, to which backward may add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.framework import Framework


class Means:
    """Of all arenas in an epoch. `of[arena][slot]`: the means there."""

    def __init__(self, framework: Framework, of: Sequence[Sequence[LoadedBucket]]) -> None:
        """None is due."""
        self.of = of
        self._framework = framework
        self._zeros = [[bucket_memory.again(mean, framework.array) for mean in own] for own in of]
        self._places = {
            name: (at, index) for at, (first, *_) in enumerate(of) for index, name in enumerate(first.names)
        }

    def is_due(self, name: str) -> bool:
        """Whether the gradient is such a mean, or that and what backward has added to it."""
        gradient = self._framework.gradient(name)
        at, index = self._places[name]
        return gradient is not None and any(gradient is mean.views[index] for mean in self.of[at])

    def zeroed(self, names: Iterable[str], shown: Mapping[int, int]) -> None:
        """A script has filled these with zeros. `shown`: by arena, the slot whose mean it saw."""
        zeroed = set(names)
        for at, slot in shown.items():
            self._framework.show(self._zeros[at][slot], zeroed)

    def moved(self) -> None:
        """Means that were applied lie in the first slots now."""
        there = {name for name in self._places if self._framework.gradient(name) is not None}
        for first, *_ in self.of:
            self._framework.show(first, there)

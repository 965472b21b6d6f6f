"""Hooks of gradients that live in buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hocket import _native
from hocket.training.memory.buckets import LoadedBucket, launches_of


class Hooks:
    """Argument of `Framework.hook`, which counts gradients for all buckets that have parts of them."""

    def __init__(self, buckets: Sequence[LoadedBucket], readiness: _native.Readiness) -> None:
        """Map gradients to launches. `readiness` counts by launch, in the order of their numbers."""
        self._readiness = readiness
        self._views = {
            name: tuple(slot.views[at] for slot in bucket.slots)
            for bucket in buckets
            for at, name in enumerate(bucket.names)
        }
        places: dict[str, list[tuple[int, int]]] = {}
        self._names: list[list[str]] = []
        for at, launch in enumerate(launches_of(buckets)):
            names = [name for name, _, _ in launch.compiled.ranges]
            self._names.append(names)
            for index, name in enumerate(names):
                places.setdefault(name, []).append((at, index))
        self._packed = {each.rows.gradient.name for each in launches_of(buckets) if each.rows is not None}
        self._places = [[places[name] for name in bucket.names] for bucket in buckets]
        self._others = [[self._views[name][1:] for name in bucket.names] for bucket in buckets]

    def hook(self, bucket: int, index: int, view: object) -> Callable[[Any], None]:
        """Return the callable for gradient `index` of a bucket, whose array is `view`."""
        name, _ = self.gradient(*self._places[bucket][index][0])
        # Rows are copied out of any gradient, wherever it is: nothing is the view.
        own = None if name in self._packed else view
        return self._readiness.hook(self._places[bucket][index], own, self._others[bucket][index])

    def gradient(self, launch: int, index: int) -> tuple[str, Any]:
        """Return the name of the gradient to which part `index` of a launch belongs, and its view in the slot that is open."""
        name = self._names[launch][index]
        views = self._views[name]
        return name, views[self._readiness.open(launch).slot]

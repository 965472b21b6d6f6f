"""Gradients that live in buckets, for all kinds of sessions that hook them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hocket import _native
from hocket.errors import UsageError
from hocket.training.buckets import LoadedBucket, launches_of
from hocket.training.framework import Framework


class Hooks:
    """The argument of `Framework.hook`: counts gradients for all buckets that have parts of them."""

    def __init__(self, buckets: Sequence[LoadedBucket], readiness: _native.Readiness) -> None:
        """`readiness` counts by launch, in the order of their numbers."""
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
        """The callable for gradient `index` of a bucket, whose array is `view`."""
        name, _ = self.gradient(*self._places[bucket][index][0])
        # Rows are copied out of any gradient, wherever it is: nothing is the view.
        own = None if name in self._packed else view
        return self._readiness.hook(self._places[bucket][index], own, self._others[bucket][index])

    def gradient(self, launch: int, index: int) -> tuple[str, Any]:
        """Name of the gradient to which part `index` of a launch belongs, and its view in the slot that is open."""
        name = self._names[launch][index]
        views = self._views[name]
        return name, views[self._readiness.slot(launch)]


class InPlace:
    """The half of a session that needs only `buckets`, `hooks`, and the `readiness` of gradients by launch."""

    framework: Framework
    buckets: list[LoadedBucket]
    readiness: _native.Readiness
    hooks: Hooks

    def zero_grad(self) -> None:
        """Zero all gradients in their buckets."""
        for bucket in self.buckets:
            self._zero(bucket)

    def _zero(self, bucket: LoadedBucket) -> None:
        if bucket.sparse:
            # Backward would add sparse gradients to a dense one.
            for name in bucket.names:
                self.framework.drop(name)
        else:
            self.framework.zero(bucket)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate gradients; the next one outside sends them."""
        before = self.readiness.enabled
        self.readiness.enabled = False
        try:
            yield
        finally:
            self.readiness.enabled = before

    def _adopt(self, launch: int, index: int, _parameter: Any) -> None:
        """Move a gradient that lies elsewhere (after `grad = None`) into its bucket; a missing one becomes zero."""
        self.framework.adopt(*self.hooks.gradient(launch, index))

    def _twice(self, launch: int, index: int) -> None:
        raise UsageError(
            f"backward makes the gradient of `{self.hooks.gradient(launch, index)[0]}` again after it was sent"
            f"\nhint: {self.framework.hints.made_twice}"
        )

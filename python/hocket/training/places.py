"""Gradients that live in buckets: what sessions of all kinds that hook them have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hocket import _native
from hocket.errors import UsageError
from hocket.training.buckets import LoadedBucket, launches_of
from hocket.training.framework import Framework


class Hooks:
    """What `Framework.hook` is given: it counts gradients by the buckets that have parts of them."""

    def __init__(self, buckets: Sequence[LoadedBucket], readiness: _native.Readiness) -> None:
        """`readiness` counts by launch, in the order of their numbers."""
        self._readiness = readiness
        views = {
            name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)
        }
        places: dict[str, list[tuple[int, int]]] = {}
        self._gradients: list[list[tuple[str, Any]]] = []
        for at, launch in enumerate(launches_of(buckets)):
            names = [name for name, _, _ in launch.compiled.ranges]
            self._gradients.append([(name, views[name]) for name in names])
            for index, name in enumerate(names):
                places.setdefault(name, []).append((at, index))
        self._places = [[places[name] for name in bucket.names] for bucket in buckets]

    def hook(self, bucket: int, index: int, view: object) -> Callable[[Any], None]:
        """The callable of gradient `index` of a bucket, which is `view`."""
        return self._readiness.hook(self._places[bucket][index], view)

    def gradient(self, launch: int, index: int) -> tuple[str, Any]:
        """Name and view of the gradient of which a launch has its part `index`."""
        return self._gradients[launch][index]


class InPlace:
    """The half of a session that knows no more than its `buckets`, the `readiness` of their gradients by launch, and `hooks`."""

    framework: Framework
    buckets: list[LoadedBucket]
    readiness: _native.Readiness
    hooks: Hooks

    def zero_grad(self) -> None:
        """All gradients zero, in their buckets."""
        for bucket in self.buckets:
            self.framework.zero(bucket)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate; nothing is sent before the next one outside."""
        before = self.readiness.enabled
        self.readiness.enabled = False
        try:
            yield
        finally:
            self.readiness.enabled = before

    def _adopt(self, launch: int, index: int, _parameter: Any) -> None:
        """A gradient that lies elsewhere (after `grad = None`) moves into its bucket; one that is not there is zero."""
        self.framework.adopt(*self.hooks.gradient(launch, index))

    def _twice(self, launch: int, index: int) -> None:
        raise UsageError(
            f"backward makes the gradient of `{self.hooks.gradient(launch, index)[0]}` again after it was sent"
            f"\nhint: {self.framework.hints.made_twice}"
        )

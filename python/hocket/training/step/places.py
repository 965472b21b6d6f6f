"""Gradients that live in buckets, for all kinds of sessions that hook gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hocket import _native
from hocket.errors import UsageError
from hocket.training.memory.buckets import LoadedBucket, launches_of
from hocket.training.memory.framework import Framework


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
        return name, views[self._readiness.slot(launch)]


class InPlace:
    """Half of a session that needs only `buckets`, `hooks`, and the `readiness` of gradients by launch."""

    framework: Framework
    buckets: list[LoadedBucket]
    readiness: _native.Readiness
    hooks: Hooks
    _accumulates = False
    """True within `no_sync`."""
    _mutes = False
    """True if the backward of the last forward was not to communicate."""
    _owed = 0
    """Forwards outside of `no_sync` since a backward last communicated."""

    def drop_gradients(self) -> None:
        """Set all gradients to None; the buckets' contents stay."""
        for bucket in self.buckets:
            for name in bucket.names:
                self.framework.drop(name)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients of forward and backward passes inside; the next backward outside sends them."""
        before, self._accumulates = self._accumulates, True
        self._decide()
        try:
            yield
        finally:
            self._accumulates = before
            self._decide()

    def forward_begins(self, *, syncs: bool) -> None:
        """Note a forward with gradients; `syncs`: the script lets its backward communicate. As with DistributedDataParallel, that
        backward then communicates even if it is within `no_sync` and only its forward was not: otherwise ranks would step apart."""
        self._mutes = not syncs
        self._owed = self._owed + 1 if syncs and not self._accumulates else 0
        self._decide()

    def _decide(self) -> None:
        """Decide whether a backward that begins now communicates."""
        self.readiness.enabled = self._owed > 0 or not (self._accumulates or self._mutes)

    def _adopt(self, launch: int, index: int, _parameter: Any) -> None:
        """Move a gradient that lies elsewhere (after `grad = None`) into its bucket; a missing one becomes zero."""
        self.framework.adopt(*self.hooks.gradient(launch, index))

    def _twice(self, launch: int, index: int) -> None:
        raise UsageError(
            f"backward makes the gradient of `{self.hooks.gradient(launch, index)[0]}` again after it was sent"
            f"\nhint: {self.framework.hints.made_twice}"
        )

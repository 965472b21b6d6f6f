"""Gradients that live in buckets: what sessions of all kinds that hook them have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hocket import _native
from hocket.errors import UsageError
from hocket.training.buckets import LoadedBucket
from hocket.training.framework import Framework


class InPlace:
    """The half of a session that knows no more than its `buckets` and the `readiness` of their gradients."""

    framework: Framework
    buckets: list[LoadedBucket]
    readiness: _native.Readiness

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

    def _adopt(self, bucket: int, index: int, _parameter: Any) -> None:
        """A gradient that lies elsewhere (after `grad = None`) moves into its bucket; one that is not there is zero."""
        own = self.buckets[bucket]
        self.framework.adopt(own.names[index], own.views[index])

    def _twice(self, bucket: int, index: int) -> None:
        raise UsageError(
            f"backward makes the gradient of `{self.buckets[bucket].names[index]}` again after it was sent"
            f"\nhint: {self.framework.hints.made_twice}"
        )

"""Gradients that live in buckets: how they get there when autograd makes them elsewhere, and what must not move them away.

What sessions of all kinds have in common; when a bucket is sent, and what comes back, is theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from hocket import _native
from hocket.errors import UsageError
from hocket.torch.buckets import Bucket


class InPlace:
    """The half of a session that knows no more than its `buckets` and the `readiness` of their gradients."""

    buckets: list[Bucket]
    readiness: _native.Readiness

    def zero_grad(self) -> None:
        """All gradients zero, in their buckets."""
        for bucket in self.buckets:
            bucket.zero()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate; nothing is sent before the next one outside."""
        before = self.readiness.enabled
        self.readiness.enabled = False
        try:
            yield
        finally:
            self.readiness.enabled = before

    def _adopt(self, bucket: int, index: int, parameter: torch.nn.Parameter) -> None:
        """A gradient that lies elsewhere (after `grad = None`) moves into its bucket; one that is not there is zero."""
        own = self.buckets[bucket]
        view = own.views[index]
        gradient = parameter.grad
        if gradient is None:
            view.zero_()
        else:
            gradient = gradient.to_dense() if gradient.is_sparse else gradient
            _check_type(own, index, gradient)
            view.copy_(gradient)
        parameter.grad = view

    def _twice(self, bucket: int, index: int) -> None:
        raise UsageError(
            f"backward makes the gradient of `{self.buckets[bucket].names[index]}` again after it was sent, as with a layer that "
            "two reentrant checkpoints share\nhint: torch.utils.checkpoint.checkpoint(…, use_reentrant=False)"
        )


def addresses(buckets: Sequence[Bucket]) -> list[int]:
    """Where the gradients are; what moves them (`model.double()`) would leave the buckets behind."""
    return [view.data_ptr() for bucket in buckets for view in bucket.views]


def check(buckets: Sequence[Bucket], before: Sequence[int]) -> None:
    """UsageError names the first gradient that was moved since `addresses`."""
    places = addresses(buckets)
    if places != before:
        moved = next(at for at, (a, b) in enumerate(zip(places, before, strict=True)) if a != b)
        name = [name for bucket in buckets for name in bucket.names][moved]
        raise UsageError(
            f"the gradient of `{name}` was moved out of its bucket, as `model.double()` or `model.to(…)` does\n"
            "hint: change the model before `distribute`"
        )


def _check_type(bucket: Bucket, index: int, gradient: torch.Tensor) -> None:
    view = bucket.views[index]
    if gradient.dtype != view.dtype or gradient.shape != view.shape or gradient.device != view.device:
        raise UsageError(
            f"the gradient of `{bucket.names[index]}` is {list(gradient.shape)} of {gradient.dtype} on "
            f"{gradient.device}, it was {list(view.shape)} of {view.dtype} on {view.device} when the model was "
            "distributed\nhint: change the model before `distribute`"
        )

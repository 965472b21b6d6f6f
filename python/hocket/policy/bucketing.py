"""Buckets of gradients by size, in the order in which backward produces them; for plans and for policies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from hocket import _native
from hocket.artefacts import gradient

T = TypeVar("T")
Some = TypeVar("Some", bound=gradient.Gradient)


class Gradient(gradient.Gradient, frozen=True):
    """A gradient with its positions in backward (`backward_order` 0 is produced first) and in forward."""

    backward_order: int
    forward_order: int


class Bucket(Struct, frozen=True):
    """Gradients of one element type, in their order in the bucket. Lower `priority` goes first."""

    gradients: tuple[Gradient, ...]
    priority: int

    @property
    def dtype(self) -> str:
        """Element type."""
        return self.gradients[0].dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        return sum(gradient.elements for gradient in self.gradients)


class Closing(Struct, frozen=True):
    """Rule by which buckets close, in bytes or whatever sizes are given in.

    Attributes:
        size: that a bucket has reached when it closes. None: it never does; 0: each gradient has its own bucket.
        first: the size at which the first bucket closes, if less.
    """

    size: float | None = None
    first: float | None = None


def partition(
    gradients: Sequence[T], rule: Closing, *, kind: Callable[[T], Hashable], size: Callable[[T], float]
) -> list[list[T]]:
    """Put gradients, or parts of them, into buckets of one kind each, of which one is open at a time."""
    kinds: dict[Hashable, int] = {}
    described = [(kinds.setdefault(kind(each), len(kinds)), size(each)) for each in gradients]
    return [[gradients[at] for at in own] for own in _native.partition(described, rule)]


def bucketed(
    gradients: Iterable[Some], size_bytes: int | None, *, first_bytes: int | None = None
) -> list[list[Some]]:
    """Group gradients, in the order in which backward produces them, by element type and size.

    UsageError: an element type whose size is unknown.

    >>> [len(each) for each in bucketed([gradient.Gradient("w", (100,), "f32")] * 5, 800, first_bytes=400)]
    [1, 2, 2]
    """
    rule = Closing(size_bytes, first_bytes)
    return partition(list(gradients), rule, kind=lambda each: each.dtype, size=lambda each: each.bytes)

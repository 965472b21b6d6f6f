"""Buckets of gradients by size, in the order in which backward produces them; for plans and for policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from hocket.artefacts import gradient

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


def bucketed(
    gradients: Iterable[Some], size_bytes: int | None, *, first_bytes: int | None = None
) -> list[list[Some]]:
    """Group gradients into buckets.

    One bucket per element type is open at a time; it closes when it has reached `size_bytes`.

    Args:
        gradients: in the order in which backward produces them.
        size_bytes: None: buckets never close; 0: each gradient has its own bucket.
        first_bytes: the size at which the first bucket closes, if less than `size_bytes`.

    Raises:
        UsageError: an element type whose size is unknown.

    >>> [len(each) for each in bucketed([gradient.Gradient("w", (100,), "f32")] * 5, 800, first_bytes=400)]
    [1, 2, 2]
    """
    closed: list[list[Some]] = []
    opened: dict[str, list[Some]] = {}
    held_bytes: dict[str, int] = {}
    for each in gradients:
        opened.setdefault(each.dtype, []).append(each)
        held = held_bytes[each.dtype] = held_bytes.get(each.dtype, 0) + each.bytes
        limit = size_bytes
        if limit is not None and first_bytes is not None and not closed:
            limit = min(limit, first_bytes)
        if limit is not None and held >= limit:
            closed.append(opened.pop(each.dtype))
            del held_bytes[each.dtype]
    return closed + list(opened.values())

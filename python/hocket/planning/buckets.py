"""Gradients in the order in which they come, put into buckets by size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Bucket, Synchroniser
from hocket.errors import UsageError


class Sized(Protocol):
    """A gradient, as far as buckets need to know it."""

    @property
    def name(self) -> str:
        """The parameter's name."""

    @property
    def elements(self) -> int:
        """Number of elements."""

    @property
    def dtype(self) -> str:
        """Element type."""


SomeSized = TypeVar("SomeSized", bound=Sized)


def bundles(
    gradients: Iterable[SomeSized], size_bytes: int | None, *, first_bytes: int | None = None
) -> list[list[SomeSized]]:
    """One open bundle per element type; a bundle closes when it has reached `size_bytes` (the first one `first_bytes`).

    None: bundles never close. Raises UsageError for an element type that has no size here.
    """
    closed: list[list[SomeSized]] = []
    opened: dict[str, list[SomeSized]] = {}
    for gradient in gradients:
        bundle = opened.setdefault(gradient.dtype, [])
        bundle.append(gradient)
        limit = size_bytes if closed or first_bytes is None else first_bytes
        if limit and sum(each.elements for each in bundle) * _item_bytes(gradient) >= limit:
            closed.append(opened.pop(gradient.dtype))
    return closed + list(opened.values())


def buckets(bundled: Sequence[Sequence[Sized]], synchroniser: Synchroniser) -> tuple[Bucket, ...]:
    """A bucket per bundle, urgent ones first."""
    return tuple(
        Bucket(
            gradients=tuple(gradient.name for gradient in bundle),
            elements=sum(gradient.elements for gradient in bundle),
            dtype=bundle[0].dtype,
            priority=priority,
            synchroniser=synchroniser,
        )
        for priority, bundle in enumerate(bundled)
    )


def _item_bytes(gradient: Sized) -> int:
    if gradient.dtype not in ITEM_BYTES:
        known = ", ".join(ITEM_BYTES)
        raise UsageError(f"profile: gradient {gradient.name} has dtype {gradient.dtype}: known are {known}")
    return ITEM_BYTES[gradient.dtype]

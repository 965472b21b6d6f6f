"""The buckets of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Bucket, Synchroniser


def buckets(gradients: Sequence[Sequence[Gradient]], synchroniser: Synchroniser) -> tuple[Bucket, ...]:
    """Of the gradients of each, urgent ones first."""
    return tuple(
        Bucket(
            gradients=tuple(each.name for each in own),
            elements=sum(each.elements for each in own),
            dtype=own[0].dtype,
            priority=priority,
            synchroniser=synchroniser,
        )
        for priority, own in enumerate(gradients)
    )

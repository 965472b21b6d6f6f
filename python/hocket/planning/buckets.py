"""Buckets of whole gradients with a common route, and plans of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.needs import bucket_needs, declared
from hocket.artefacts.plan import Bucket, Codec, Evidence, Part, Plan, Route, Rule
from hocket.artefacts.profile import Gradient as Profiled
from hocket.artefacts.profile import Profile
from hocket.planning.traffic import pairs


def buckets(
    gradients: Sequence[Sequence[Gradient]],
    route: Route,
    order: Sequence[int],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    rule: Rule | None = None,
) -> tuple[Bucket, ...]:
    """One bucket per sequence of gradients, urgent ones first."""
    return tuple(
        Bucket(
            parts=tuple(Part(variable=each.name, stop=each.elements) for each in own),
            elements=sum(each.elements for each in own),
            dtype=own[0].dtype,
            route=route,
            order=tuple(order),
            priority=priority,
            chunk_bytes=chunk_bytes,
            rule=rule or Rule(),
        )
        for priority, own in enumerate(gradients)
    )


Piece = tuple[Gradient, int, int]
"""Gradient, first element and end element."""


def bucket_of(pieces: Sequence[Piece], template: Bucket, priority: int) -> Bucket:
    """A bucket of these pieces, all of one element type, with the template's route.

    >>> from hocket.artefacts.plan import AllReduce
    >>> ring = Bucket(parts=(), elements=0, dtype="f32", route=AllReduce(algorithm="ring"), order=(0, 1), priority=0)
    >>> bucket_of([(Gradient("w", (10,), "f16"), 4, 10)], ring, 3).elements
    6
    """
    return msgspec.structs.replace(
        template,
        parts=tuple(Part(variable=each.name, start=start, stop=stop) for each, start, stop in pieces),
        elements=sum(stop - start for _, start, stop in pieces),
        dtype=pieces[0][0].dtype,
        priority=priority,
    )


def backward_order(gradients: Sequence[Profiled]) -> list[Profiled]:
    """Gradients in the order in which backward produces them; ties by reversed order in the model."""
    found = list(reversed(gradients))
    found.sort(key=lambda each: each.ready_s)
    return found


def plan_of(
    buckets: Sequence[Bucket], world: int, *, label: str, reason: str = "", step_s: float | None = None
) -> Plan:
    """A plan of these buckets in which every rank computes, with the strictest promise that the buckets keep.

    >>> plan_of([], 2, label="empty").workers
    (0, 1)
    """
    return Plan(
        world=world,
        workers=tuple(range(world)),
        buckets=tuple(buckets),
        promise=declared(bucket_needs(buckets)),
        evidence=Evidence(predicted_step_s=step_s),
        label=label,
        reason=reason,
    )


def with_codec(bucket: Bucket, codec: Codec, slow: Sequence[tuple[int, int]]) -> Bucket:
    """The bucket with a codec on the slow pairs that its route uses.

    >>> from hocket.artefacts.plan import AllReduce
    >>> ring = Bucket(parts=(), elements=0, dtype="f32", route=AllReduce(algorithm="ring"), order=(0, 1, 2), priority=0)
    >>> with_codec(ring, "f16", [(0, 1), (1, 0)]).codec_links
    ((0, 1),)
    """
    used = pairs(bucket)
    links = tuple(pair for pair in slow if pair in used)
    return msgspec.structs.replace(bucket, codec=codec, codec_links=links)


def sizes_of(bucket: Bucket) -> Iterator[tuple[str, int]]:
    """Variable and number of elements of each part. The first part without an end gets the rest, other such parts one element."""
    ended = sum(part.stop - part.start for part in bucket.parts if part.stop is not None)
    endless = sum(part.stop is None for part in bucket.parts)
    left = bucket.elements - ended - max(0, endless - 1)
    for part in bucket.parts:
        if part.stop is None:
            yield part.variable, left
            left = 1
        else:
            yield part.variable, part.stop - part.start


def needed_s(buckets: Sequence[Bucket], profile: Profile) -> list[float]:
    """Return by bucket when forward first needs one of its variables."""
    known = {each.name: each.needed_s for each in profile.gradients}
    return [min(known[name] for name in bucket.variables) for bucket in buckets]

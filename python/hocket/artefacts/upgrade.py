"""Upgrade of plan files of version 1: whole variables, one order for all buckets, an all-reduce for each."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.artefacts.numbers import Ranks
from hocket.artefacts.plan import AllReduce, Bucket, Candidate, Codec, Evidence, Part, Plan


def current(tree: Any) -> Any:
    """Return the tree of any plan as one of today's version. Raises msgspec.ValidationError: it is no plan of version 1."""
    if isinstance(tree, dict) and tree.get("version", 1) == 1:
        return msgspec.to_builtins(of_version_1(tree))
    return tree


def of_version_1(tree: dict[str, Any]) -> Plan:
    """Return the plan in today's version; its rules are not known. Raises msgspec.ValidationError: it is no plan of version 1.

    >>> tree = {"version": 1, "world": 2, "order": [0, 1], "buckets": [], "label": "", "reason": "", "predicted_step_s": 0.0}
    >>> of_version_1(tree).workers
    (0, 1)
    """
    plan = typed.of_builtins(tree, _Plan)
    rounds = any(bucket.synchroniser.codec != "none" for bucket in plan.buckets)
    return Plan(
        world=plan.world,
        workers=tuple(range(plan.world)),
        buckets=tuple(
            Bucket(
                parts=tuple(Part(variable=name) for name in bucket.gradients),
                elements=bucket.elements,
                dtype=bucket.dtype,
                route=AllReduce(algorithm=bucket.synchroniser.algorithm, sizes=bucket.synchroniser.sizes),
                order=plan.order,
                priority=bucket.priority,
                codec=bucket.synchroniser.codec,
                codec_links=bucket.synchroniser.codec_links,
                chunk_bytes=bucket.synchroniser.chunk_bytes,
            )
            for bucket in plan.buckets
        ),
        promise="rounded" if rounds else "exact",
        evidence=Evidence(predicted_step_s=plan.predicted_step_s or None, candidates=plan.candidates),
        label=plan.label,
        reason=plan.reason,
    )


class _Synchroniser(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    algorithm: str
    sizes: tuple[int, ...] = ()
    codec: Codec = "none"
    codec_links: tuple[tuple[int, int], ...] = ()
    chunk_bytes: int = CHUNK_BYTES


class _Bucket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gradients: tuple[str, ...]
    elements: int
    dtype: str
    priority: int
    synchroniser: _Synchroniser


class _Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = 1
    world: Ranks
    order: tuple[int, ...]
    buckets: tuple[_Bucket, ...]
    label: str
    reason: str
    predicted_step_s: float
    candidates: tuple[Candidate, ...] = ()

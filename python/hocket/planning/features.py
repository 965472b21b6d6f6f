"""Properties of a plan that may make predictions inaccurate, as fractions of its predicted step: dimensionless, and comparable
between clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import AllReduce, Bucket, Owned, Plan
from hocket.artefacts.profile import Profile

NAMES = ("waiting", "launches", "messages", "incast", "exchange", "parts", "codec")
"""Fractions of the step: waiting for communication; launching buckets; handling messages; and of the waiting: for buckets with
incast (few receivers); with several owners; for variables in several buckets; for buckets with a codec."""


def features(plan: Plan, profile: Profile, step_s: float) -> Any:
    """Values in the order of NAMES for a plan that is predicted to take `step_s`.

    >>> from hocket.planning.buckets import buckets, plan_of
    >>> from hocket.planning.search import neutral_profile
    >>> model = neutral_profile()
    >>> made = plan_of(buckets([model.gradients], AllReduce(algorithm="direct"), (0, 1)), 2, label="direct")
    >>> dict(zip(NAMES, features(made, model, 2.0).tolist()))["incast"]
    0.0
    """
    waiting = max(0.0, step_s - profile.step_s) / step_s
    held = np.array([each.elements * ITEM_BYTES[each.dtype] for each in plan.buckets], dtype=float)
    shares = held / max(1.0, held.sum())
    variables = {name for bucket in plan.buckets for name in bucket.variables}
    parts = sum(len(bucket.variables) for bucket in plan.buckets)
    return np.array(
        [
            waiting,
            len(plan.buckets) * _native.BUCKET_S / step_s,
            sum(map(_messages_s, plan.buckets)) / step_s,
            waiting * float(shares @ np.array([_incast(each) for each in plan.buckets])),
            waiting * _share(shares, [_owners(each) > 1 for each in plan.buckets]),
            waiting * (1 - len(variables) / max(1, parts)),
            waiting * _share(shares, [each.codec != "none" for each in plan.buckets]),
        ]
    )


def _share(shares: Any, wanted: list[bool]) -> float:
    return float(shares[wanted].sum())


def _owners(bucket: Bucket) -> int:
    """Number of members to which the others send directly; 0 for other routes."""
    route = bucket.route
    if isinstance(route, Owned):
        return sum(owner.share > 0 for owner in route.owners)
    if isinstance(route, AllReduce) and route.algorithm == "parameter_server":
        return route.sizes[0]
    if isinstance(route, AllReduce) and route.algorithm == "collect_spread":
        return sum(share > 0 for share in route.sizes[: len(bucket.order)])
    return len(bucket.order) if isinstance(route, AllReduce) and route.algorithm == "direct" else 0


def _incast(bucket: Bucket) -> float:
    """Fraction of members that receive from nobody directly."""
    owners = _owners(bucket)
    return 1 - owners / len(bucket.order) if owners else 0.0


def _messages_s(bucket: Bucket) -> float:
    """Engine time of a rank for messages, as in a ring: twice all chunks of the bucket, at least one to each other rank."""
    chunks = max(float(len(bucket.order)), bucket.elements * ITEM_BYTES[bucket.dtype] / bucket.chunk_bytes)
    return 4 * chunks * _native.MESSAGE_S

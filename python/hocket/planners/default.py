"""The plan of a job that nobody measured: by hosts alone, gradients in reverse order of registration."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hocket.artefacts.plan import SHARED_CHUNK_BYTES, Plan, Synchroniser
from hocket.planners.buckets import buckets, bundles

FIRST_BUCKET_BYTES = 1 << 20
"""The first bucket is ready early in backward: a small one puts the network to work."""

BUCKET_BYTES = 4 << 20
"""Large enough that per-bucket costs vanish, small enough to overlap with backward."""


class Shape(Struct, frozen=True, kw_only=True):
    """A gradient as planning sees it: elements, not extents."""

    name: str
    elements: int
    dtype: str


def default_plan(gradients: Sequence[Shape], hosts: Sequence[str]) -> Plan:
    """A plan for `gradients` in registration order; `hosts[rank]` is each rank's host.

    One host: in place, through shared memory. Several hosts with several ranks each, next to one another: `two_level`. Else
    a ring.

    >>> default_plan([Shape(name="w", elements=10, dtype="f32")], ["a", "a"]).buckets[0].synchroniser.algorithm
    'in_place'
    """
    world = len(hosts)
    blocks = host_runs(hosts)
    if len(blocks) == 1:
        synchroniser = Synchroniser(algorithm="in_place", chunk_bytes=SHARED_CHUNK_BYTES)
        why = "all ranks are on one host"
    elif len(blocks) < world and len(blocks) == len(set(hosts)):
        synchroniser, why = (
            Synchroniser(algorithm="two_level", sizes=tuple(blocks)),
            "hosts have several ranks",
        )
    else:
        synchroniser, why = Synchroniser(algorithm="ring"), "each rank has its own host"
    bundled = bundles(list(reversed(gradients)), BUCKET_BYTES, first_bytes=FIRST_BUCKET_BYTES)
    return Plan(
        world=world,
        order=tuple(range(world)),
        buckets=buckets(bundled, synchroniser),
        label=f"default {synchroniser.algorithm}",
        reason=f"Nothing was measured; {why}.",
        predicted_step_s=0.0,
    )


def host_runs(hosts: Sequence[str]) -> list[int]:
    """Lengths of the runs of equal hosts."""
    blocks: list[int] = []
    for rank, host in enumerate(hosts):
        if rank > 0 and host == hosts[rank - 1]:
            blocks[-1] += 1
        else:
            blocks.append(1)
    return blocks

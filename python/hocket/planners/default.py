"""The plan of a job that nobody measured: by hosts alone, gradients in reverse order of registration."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hocket.artefacts.plan import Plan, Synchroniser
from hocket.planners.buckets import buckets, bundles

FIRST_BUCKET_BYTES = 1 << 20
"""The first bucket is ready early in backward: a small one puts the network to work."""

BUCKET_BYTES = 4 << 20
"""Large enough that per-bucket costs vanish, small enough to overlap with backward."""

SHARED_CHUNK_BYTES = 524_288
"""Through shared memory a chunk costs a post and a wake-up: of 128 KiB to 2 MiB, 512 KiB and 1 MiB were fastest for 25 MB on
4 ranks (4.1 ms; 256 KiB took 4.4 ms, 128 KiB 5.1 ms, 2 MiB 5.8 ms, Gloo 24 ms, in turns in one run)."""


class Shape(Struct, frozen=True, kw_only=True):
    """A gradient as planning sees it: elements, not extents."""

    name: str
    elements: int
    dtype: str


def default_plan(gradients: Sequence[Shape], hosts: Sequence[str]) -> Plan:
    """A plan for `gradients` in registration order; `hosts[rank]` is each rank's host.

    One host: `direct` through shared memory. Several hosts with several ranks each, next to one another: `two_level`. Else
    a ring.

    >>> default_plan([Shape(name="w", elements=10, dtype="f32")], ["a", "a"]).buckets[0].synchroniser.algorithm
    'direct'
    """
    world = len(hosts)
    blocks = _blocks(hosts)
    if len(blocks) == 1:
        synchroniser = Synchroniser(algorithm="direct", chunk_bytes=SHARED_CHUNK_BYTES)
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


def _blocks(hosts: Sequence[str]) -> list[int]:
    """Lengths of the runs of equal hosts."""
    blocks: list[int] = []
    for rank, host in enumerate(hosts):
        if rank > 0 and host == hosts[rank - 1]:
            blocks[-1] += 1
        else:
            blocks.append(1)
    return blocks

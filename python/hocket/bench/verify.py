"""How long it takes to compile and verify the programs of a large job."""

from __future__ import annotations

import time

from msgspec import Struct

from hocket.artefacts.plan import Synchroniser
from hocket.planning.compile import all_reduce_program

RACKS = 4


class VerifyCost(Struct, frozen=True, kw_only=True):
    """Seconds for all buckets: lowered, ordered, chunked and verified, as ranks do before the first step."""

    world: int
    buckets: int
    elements: int
    total_s: float


def measure(*, world: int = 64, buckets: int = 200, elements: int = 1_000_000) -> VerifyCost:
    """Two-level over RACKS racks; every bucket is compiled anew."""
    synchroniser = Synchroniser(algorithm="two_level", sizes=(world // RACKS,) * RACKS)
    began_s = time.perf_counter()
    for _ in range(buckets):
        all_reduce_program(
            world=world,
            elements=elements,
            dtype="f32",
            op="sum",
            scale=1.0 / world,
            synchroniser=synchroniser,
        )
    return VerifyCost(world=world, buckets=buckets, elements=elements, total_s=time.perf_counter() - began_s)

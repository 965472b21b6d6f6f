"""One all-reduce alone on a network, by trees that fill its links and by other algorithms, beside what its narrowest cut allows.

Only links take time here: what is compared is how algorithms use a network.
"""

from __future__ import annotations

import time
from itertools import pairwise

from msgspec import Struct

from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Plan
from hocket.artefacts.profile import Gradient
from hocket.errors import UsageError
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.search import neutral_profile
from hocket.tools.simulation import flow
from hocket.tools.simulation.conditions import Costs

LINKS_ALONE = Costs(
    send_s=0.0,
    receive_s=0.0,
    reduce_s_per_byte=0.0,
    cast_s_per_byte=0.0,
    copy_s_per_byte=0.0,
    socket_s_per_byte=0.0,
    rendezvous=False,
)

ITEM_BYTES, BITS = 4, 8

PIECES = 128
"""Number of buckets that a payload is cut into, earlier ones more urgent: links then serve what others wait for before what they
could do at any time. With fewer, the first and the last ones count more."""


class Trees(Struct, frozen=True, kw_only=True):
    """Trees of an all-reduce. `least_s_per_bit`: by the narrowest cut; `taken_s_per_bit`: of the link that they keep busiest."""

    route: AllReduce
    pairs: int
    found_s: float
    least_s_per_bit: float
    taken_s_per_bit: float


class Predicted(Struct, frozen=True, kw_only=True):
    """One algorithm. `of_optimum`: throughput over that of the narrowest cut."""

    algorithm: str
    taken_s: float
    bytes_per_s: float
    of_optimum: float
    messages: int


def trees(network: Network) -> Trees:
    """Find the trees. Raises UsageError for a rank alone, or ranks that cannot reach one another."""
    native = network.native
    began_s = time.perf_counter()
    found = native.trees(network.world)
    found_s = time.perf_counter() - began_s
    if found is None:
        raise UsageError(
            f"{network.title}: there are no trees among {network.world} ranks that reach one another"
        )
    numbers, least_s, taken_s = found
    return Trees(
        route=AllReduce(algorithm="trees", sizes=tuple(numbers)),
        pairs=len(numbers) // (2 * network.world + 1),
        found_s=found_s,
        least_s_per_bit=least_s,
        taken_s_per_bit=taken_s,
    )


def plan(route: AllReduce, world: int, size_bytes: int) -> Plan:
    """Return the plan of buckets that travel by that route, one after the other."""
    made = buckets(
        [[each] for each in _gradients(size_bytes)],
        route,
        range(world),
        chunk_bytes=max(ITEM_BYTES, size_bytes),
    )
    return plan_of(made, world, label=route.algorithm)


def predict(network: Network, found: Trees, route: AllReduce, size_bytes: int) -> Predicted:
    """Simulate an all-reduce of that size by that route, all of it there at once."""
    profile = neutral_profile(_gradients(size_bytes))
    outcome = flow.predict(
        plan(route, network.world, size_bytes), network, profile, costs=LINKS_ALONE
    ).outcome
    taken_s = max(each.done_s for each in outcome.buckets) - min(each.launched_s for each in outcome.buckets)
    return Predicted(
        algorithm=route.algorithm,
        taken_s=taken_s,
        bytes_per_s=size_bytes / taken_s,
        of_optimum=BITS * size_bytes * found.least_s_per_bit / taken_s,
        messages=outcome.messages,
    )


def _gradients(size_bytes: int) -> list[Gradient]:
    elements = max(1, size_bytes // ITEM_BYTES)
    pieces = min(PIECES, elements)
    edges = [elements * at // pieces for at in range(pieces + 1)]
    return [
        Gradient(name=f"piece {at}", shape=(stop - start,), dtype="f32", ready_s=0.0, needed_s=0.0)
        for at, (start, stop) in enumerate(pairwise(edges))
    ]

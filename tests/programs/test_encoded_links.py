"""Codecs on any choice of links: what planners choose by measured rates has no symmetry."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts.algorithms import ALL_REDUCES
from hocket.artefacts.plan import AllReduce, Bucket, Direct, Owned, Owner, TwoLevel
from hocket.planning.buckets import plan_of
from hocket.planning.compile import programs

WORLD = 4
PAIRS = [*itertools.permutations(range(WORLD), 2)]
ELEMENTS = 256

ROUTES = [
    *(
        AllReduce(algorithm=name)
        for name in ALL_REDUCES
        if name not in ("two_level", "bcube", "parameter_server", "collect_spread", "trees")
    ),
    AllReduce(algorithm="two_level", sizes=(2, 2)),
    # Up a chain and down a star, and the reverse.
    AllReduce(algorithm="trees", sizes=(2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 3, 3, 3, 3, 1, 2, 3, 3)),
    *(
        Owned(
            owners=tuple(Owner(rank=rank, share=share) for rank, share in enumerate(shares) if share), via=via
        )
        for shares in ((1, 1, 1, 1), (1, 0, 0, 2))
        for via in (Direct(), TwoLevel(stations=(2, 2)))
    ),
]


@given(
    route=st.sampled_from(ROUTES), order=st.permutations(range(WORLD)), links=st.sets(st.sampled_from(PAIRS))
)
def test_replicas_are_equal(route: AllReduce | Owned, order: list[int], links: set[tuple[int, int]]) -> None:
    """Broken: a value that returns to its owner by links that are not encoded would be another one than what others have got."""
    bucket = Bucket(
        parts=(),
        elements=ELEMENTS,
        dtype="f32",
        route=route,
        order=tuple(order),
        priority=0,
        codec="f16" if links else "none",
        codec_links=tuple(sorted(links)),
        chunk_bytes=ELEMENTS,
    )
    assert programs(plan_of([bucket], WORLD, label=""))

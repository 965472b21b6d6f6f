"""Bytes that each algorithm puts on each link, counted by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hocket.artefacts.algorithms import LIST
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce, Bucket, Part
from hocket.artefacts.profile import Profile
from hocket.errors import UsageError
from hocket.planning.buckets import plan_of
from hocket.planning.compile import bucket_program
from hocket.planning.cost import predict
from hocket.planning.traffic import sent, wire_bytes

ELEMENTS = 800_000
"""Four bytes each: 3.2 MB."""


def bucket(
    algorithm: str, order: tuple[int, ...], elements: int, dtype: str = "f32", **fields: Any
) -> Bucket:
    route = AllReduce(algorithm=algorithm, sizes=fields.pop("sizes", ()))
    return Bucket(
        parts=(Part(variable="w"),),
        elements=elements,
        dtype=dtype,
        route=route,
        order=order,
        priority=0,
        **fields,
    )


def pair_bytes(moved: Bucket) -> dict[tuple[int, int], float]:
    """Bytes on the wire between every ordered pair of physical ranks, after the codec."""
    return {pair: count * wire_bytes(moved, *pair) for pair, count in sent(moved).items()}


def loads(
    cluster: Cluster, order: tuple[int, ...], algorithm: str, profile: Profile, **fields: Any
) -> dict[str, float]:
    parts = tuple(Part(variable=gradient.name) for gradient in profile.gradients)
    whole = msgspec.structs.replace(bucket(algorithm, order, ELEMENTS, **fields), parts=parts)
    plan = plan_of([whole], 4, label="")
    return {load.link: load.bytes for load in predict(plan, cluster, profile).loads}


def test_ring_given_order_crosses_trunk_on_every_edge(two_racks: Cluster, profile: Profile) -> None:
    """Broken: the planner would not see that an alternating order sends every edge over the trunk."""
    link = loads(two_racks, (0, 1, 2, 3), "ring", profile)
    assert link["trunk of rack0 out"] == 2 * 4_800_000  # edges 0→1 and 2→3, 2·3/4 of 3.2 MB each
    assert link["trunk of rack0 in"] == 2 * 4_800_000  # edges 1→2 and 3→0
    assert link["h0 out"] == link["h0 in"] == 4_800_000


def test_ring_contiguous_order_crosses_trunk_once_each_way(two_racks: Cluster, profile: Profile) -> None:
    """Broken: the contiguous order would not be preferred."""
    link = loads(two_racks, (0, 2, 1, 3), "ring", profile)
    assert link["trunk of rack0 out"] == link["trunk of rack0 in"] == 4_800_000


def test_two_level_crosses_trunk_with_the_leaders_ring_only(two_racks: Cluster, profile: Profile) -> None:
    """Broken: two-level's saving on the trunk, or its cost on the leaders' links, would be miscounted."""
    link = loads(two_racks, (0, 2, 1, 3), "two_level", profile, sizes=(2, 2))
    assert link["trunk of rack0 out"] == link["trunk of rack0 in"] == 3_200_000  # ring of two leaders: 2·1/2
    assert link["h0 in"] == link["h0 out"] == 6_400_000  # the leaders' ring and the chain
    assert link["h2 in"] == link["h2 out"] == 3_200_000


def test_two_level_of_three_chains_through_the_middle() -> None:
    """Broken: blocks of more than two ranks would be costed as if all sent to the leader at once."""
    sent = pair_bytes(bucket("two_level", (0, 1, 2, 3), 100, sizes=(3, 1)))
    assert sent == {(2, 1): 400, (1, 0): 400, (0, 1): 400, (1, 2): 400, (0, 3): 400, (3, 0): 400}


def test_direct_sends_two_shares_to_everyone() -> None:
    """Broken: the direct algorithm on one host would be miscounted."""
    sent = pair_bytes(bucket("direct", (0, 1, 2, 3), 100))
    assert len(sent) == 12
    assert set(sent.values()) == {200}


def test_codec_halves_bytes_on_its_links_only() -> None:
    """Broken: f16 would be credited on links that do not use it, or not where it is used."""
    sent = pair_bytes(bucket("ring", (0, 1), 100, codec="f16", codec_links=((0, 1),)))
    assert sent == {(0, 1): 200, (1, 0): 400}


def test_codec_does_not_widen_a_narrow_bucket() -> None:
    """Broken: a half-precision bucket would be credited with a saving that the codec cannot make."""
    narrow = bucket("ring", (0, 1), 100, "bf16", codec="f16", codec_links=((0, 1), (1, 0)))
    assert set(pair_bytes(narrow).values()) == {200}


def test_one_rank_sends_nothing() -> None:
    """Broken: a single process would be planned to wait for a network."""
    assert pair_bytes(bucket("ring", (0,), 100)) == {}


def test_sizes_that_do_not_add_up_are_refused() -> None:
    """Broken: a damaged plan would be scored as if it were sound."""
    with pytest.raises(UsageError, match=r"groups of \[2, 3\] for 4 ranks"):
        sent(bucket("two_level", (0, 1, 2, 3), 100, sizes=(2, 3)))


@pytest.mark.parametrize("world", range(2, 10))
@pytest.mark.parametrize("elements", [1, 5041, 5040])
@pytest.mark.parametrize(
    "algorithm",
    [each.name for each in LIST if "all_reduce" in each.does and each.name != "in_place"],
)
def test_counted_bytes_are_those_of_the_program(world: int, algorithm: str, elements: int) -> None:
    """Broken: plans would be scored by other traffic than they make."""
    sizes = {
        "parameter_server": (max(1, world // 2),),
        "bcube": (4,),
        "two_level": (1, world - 1),
        "collect_spread": (*range(world), *range(world, 0, -1)),
        # Up a chain and down a star, and the reverse.
        "trees": (
            2,
            0,
            *range(world - 1),
            *(0,) * world,
            1,
            *(world - 1,) * world,
            *range(1, world),
            world - 1,
        ),
    }
    made = bucket(algorithm, tuple(range(world)), elements, sizes=sizes.get(algorithm, ()))
    program = bucket_program(0, plan_of([made], world, label=""))
    moved: dict[tuple[int, int], float] = {}
    for rank in range(world):
        for op in program.ops(rank):
            if op["op"] == "send":
                _, start, stop = op["src"]
                pair = rank, op["peer"]
                moved[pair] = moved.get(pair, 0) + 4 * (stop - start)
    assert pair_bytes(made) == moved

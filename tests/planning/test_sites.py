"""Sites that step alone: which ranks they have, and the proof that each averages the gradients of its own ranks, and no others."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket import reference
from hocket._native import Program
from hocket.artefacts.local import Local, Sites, in_step, localized, shortened
from hocket.artefacts.plan import AllReduce, Bucket, Plan
from hocket.artefacts.plan_check import findings
from hocket.errors import ProgramError, UsageError
from hocket.planning import sites
from hocket.planning.buckets import plan_of
from hocket.planning.compile import all_reduce_program
from hocket.planning.turn_memory import extra_bytes
from hocket.policy.topology import Topology
from hocket.refusals import ELASTIC, INSIDE, REFUSED
from hocket.training.features import check_elastic, runs_elastic


def plan_in(inside: Sites, elements: int = 24, dtype: str = "f32") -> Plan:
    world = sum(map(len, inside))
    bucket = Bucket(
        parts=(),
        elements=elements,
        dtype=dtype,
        route=AllReduce(algorithm="ring"),
        order=tuple(range(world)),
        priority=0,
    )
    return localized(plan_of([bucket], world, label="plan"), Local(every=4, inside=inside))


@st.composite
def divided(draw: st.DrawFn) -> tuple[Sites, list[str], list[int]]:
    """Sites of some ranks, the host of each rank, and the lengths of a bucket's pieces."""
    ranks = draw(st.permutations(range(draw(st.integers(2, 9)))))
    ends = sorted(draw(st.sets(st.integers(1, len(ranks) - 1), min_size=1)))
    inside = tuple(
        tuple(sorted(ranks[start:stop])) for start, stop in zip([0, *ends], [*ends, len(ranks)], strict=True)
    )
    hosts = [""] * len(ranks)
    for at, site in enumerate(inside):
        many = draw(st.booleans())
        for rank in site:
            hosts[rank] = f"{at}-{draw(st.integers(0, 2)) if many else 0}"
    return inside, hosts, draw(st.lists(st.sampled_from([0, 1, 7, 100]), min_size=1, max_size=3))


@settings(max_examples=150, deadline=None)
@given(divided(), st.integers(0, 1 << 30))
def test_each_site_ends_with_its_own_mean(case: tuple[Sites, list[str], list[int]], seed: int) -> None:
    """Broken: a rank would get gradients of another site, or lose those of its own."""
    inside, hosts, lengths = case
    elements = sum(lengths)
    own = np.random.default_rng(seed).standard_normal((len(hosts), elements)).astype(np.float32)
    program = sites.means(0, plan_in(inside, elements), hosts, lengths if len(lengths) > 1 else ())
    for source, to in program.pairs():
        assert any(source in site and to in site for site in inside)
    cuts = np.cumsum(lengths)[:-1]
    buffers = [[each.copy() for each in np.split(row, cuts)] for row in own]
    reference.run(program, buffers)
    found = np.stack([np.concatenate(each) for each in buffers])
    for site in inside:
        assert all(np.array_equal(found[rank], found[site[0]]) for rank in site)
        np.testing.assert_allclose(found[site[0]], own[list(site)].mean(0), rtol=1e-5, atol=1e-6)
    votes = sites.votes(inside, hosts, 5)
    cast = [
        [np.random.default_rng(seed + rank).standard_normal(5).astype(np.float32)]
        for rank in range(len(hosts))
    ]
    kept = [each.copy() for (each,) in cast]
    reference.run(votes, cast)
    for site in inside:
        for rank in site:
            np.testing.assert_array_equal(cast[rank][0], np.max([kept[each] for each in site], 0))


def test_each_site_is_proved() -> None:
    """Broken: a site whose ranks miss a gradient, or scale it otherwise, would train a wrong model in silence."""
    text = str(sites.means(0, plan_in(((0, 1), (2, 3))), list("abcd")))
    assert text.count("ensures all_reduce sum scale 0.5") == 2
    head, _, second = text.partition("rank 2 {")
    for wrong in (
        head + "rank 2 {" + second.replace("scale 0.5", "scale 0.25"),
        head + "rank 2 {" + second.replace("store", "reduce sum", 1),
        text.replace("over 2 3", "over 0 1 2 3"),
    ):
        assert wrong != text
        with pytest.raises(ProgramError):
            Program.parse(wrong).verify()


@pytest.mark.parametrize(
    ("route", "order", "times"),
    [
        (AllReduce(algorithm="two_level", sizes=(2, 2, 2, 2)), None, 1.5),
        (AllReduce(algorithm="ring"), None, 1.75),
        (AllReduce(algorithm="ring"), (0, 2, 4, 6, 1, 3, 5, 7), 3.5),
    ],
)
def test_two_levels_send_the_progress_of_a_site_once(
    route: AllReduce, order: tuple[int, ...] | None, times: float
) -> None:
    """Broken: docs/training.md would promise less traffic between sites than there is. By site, elements that leave it."""
    elements = 8000
    program = all_reduce_program(
        world=8, elements=elements, dtype="f32", op="sum", scale=1 / 8, route=route, order=order
    )
    for site in range(4):
        sends = [op for rank in (2 * site, 2 * site + 1) for op in program.ops(rank) if op["op"] == "send"]
        away = [op["src"] for op in sends if op["peer"] // 2 != site]
        assert sum(stop - start for _, start, stop in away) == times * elements


def test_sites_follow_from_hosts_and_racks() -> None:
    """Broken: ranks that are far from one another would exchange in every step."""
    topology = Topology.even(world=8, racks=2, hosts_per_rack=2)
    local = Local(every=30, late=2, fragments=2)
    for inside, expected in (
        ("rack", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("host", ((0, 1), (2, 3), (4, 5), (6, 7))),
        (([5, 4, 6, 7], [3, 2, 1, 0]), ((0, 1, 2, 3), (4, 5, 6, 7))),
        (tuple((rank,) for rank in range(8)), None),
    ):
        asked = msgspec.structs.replace(local, inside=inside)
        assert sites.with_sites(asked, topology) == msgspec.structs.replace(local, inside=expected)


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        (
            "rack",
            "inside='rack': all ranks are in one rack, so they would step together and exchange in vain",
        ),
        ("host", "inside='host': all ranks are on one host"),
        ("hosts", "inside='hosts': `host`, `rack`, or the ranks of each site"),
        (((0, 1, 2, 3),), "all ranks are in one site"),
        (((0, 1), (2,)), "each of the 4 ranks is in one site"),
        (((0, 1), (2, 3, 4)), "each of the 4 ranks is in one site"),
        (((0, 1), (1, 2, 3)), "each of the 4 ranks is in one site"),
    ],
)
def test_ranks_that_are_in_no_site_are_refused(inside: object, said: str) -> None:
    """Broken: ranks would wait for one another for ever, or nothing be exchanged between sites."""
    with pytest.raises(UsageError, match=re.escape(said)):
        sites.with_sites(Local(every=4, inside=inside), Topology.even(world=4, hosts_per_rack=1))  # type: ignore[arg-type]


def test_a_plan_has_ranks_not_words() -> None:
    """Broken: a plan would mean other ranks on other machines, or a site that its job does not have."""
    with pytest.raises(UsageError, match="a plan does not know where ranks are"):
        Local(every=4, inside="rack").schedule(1)
    plan = plan_in(((0, 1), (2, 3)))
    assert [each.message for each in findings(plan) if each.fault == "schedule"] == []
    assert plan.label == "plan, 2 sites alone for 4 steps"
    for wrong in (((0, 1), (2,)), ((0, 1), (2, 3), (3,)), ((0, 1, 2, 3), ())):
        outer = msgspec.structs.replace(plan.schedule.outer, inside=wrong)  # type: ignore[type-var]
        schedule = msgspec.structs.replace(plan.schedule, outer=outer)
        found = findings(msgspec.structs.replace(plan, schedule=schedule))
        assert [each.message for each in found if each.fault == "schedule"] == [
            f"sites of ranks {[list(site) for site in wrong]}: each of [0, 1, 2, 3] is in one"
        ]


def test_sites_stay_where_exchanges_are_more_frequent() -> None:
    """Broken: after a retreat of the guard, ranks of a site would step by themselves."""
    inside = ((0, 1), (2, 3))
    plan = plan_in(inside)
    assert {each.outer.inside for each in (plan.schedule, *plan.safer) if each.outer is not None} == {inside}
    assert sites.sites_of(msgspec.structs.replace(plan, schedule=in_step(plan.schedule))) == inside
    assert shortened(Local(every=9, late=2, inside=inside), 1).inside == inside


def test_memory_of_gradients_is_counted() -> None:
    """Broken: a plan would say that a model fits where it does not."""
    inside = plan_in(((0, 1), (2, 3)))
    alone = localized(plan_of(inside.buckets, 4, label=""), Local(every=4))
    more = (extra_bytes(each.buckets, [each.schedule], None) for each in (inside, alone))
    assert next(more) - next(more) == 4 * 24


def test_elastic_jobs_refuse_sites() -> None:
    """Broken: a loss between two exchanges would leave ranks of a site with different parameters."""
    plan = plan_in(((0, 1), (2, 3)))
    assert not runs_elastic(plan)
    with pytest.raises(UsageError, match=re.escape(REFUSED[ELASTIC, INSIDE].partition("\n")[0])):
        check_elastic(plan)

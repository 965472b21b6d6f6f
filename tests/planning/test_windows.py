"""DeFT's partition rule and the links of its scheduler: what is cut, into how much, and what is told of several cards."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from hocket import _native
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.artefacts.plan_check import findings
from hocket.artefacts.profile import Profile
from hocket.errors import UsageError
from hocket.planning import ways
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.cost import pieces
from hocket.planning.links import link_graph
from hocket.planning.schedules import deft, papers, steady
from hocket.planning.windows import PART_ELEMENTS, PARTS_MAX, fitted, starving, timed, views, windows_s
from tests.planning.planner_inputs import alternating, model
from tests.support import drawn

CARDS = (330e6, 200e6)


def uneven(draw: random.Random) -> tuple[Plan, Profile]:
    """A model of gradients of very different sizes, some of them in one bucket, which lie in it in any order."""
    of = model(draw.randint(2, 9), 1)
    gradients = tuple(
        msgspec.structs.replace(each, shape=(round(10 ** draw.uniform(2, 6.5)),)) for each in of.gradients
    )
    places = sorted(draw.sample(range(1, len(gradients)), draw.randint(0, min(3, len(gradients) - 1))))
    groups = [
        draw.sample(gradients[first:last], last - first)
        for first, last in zip([0, *places], [*places, len(gradients)], strict=True)
    ]
    made = plan_of(buckets(groups, AllReduce(algorithm="ring"), range(4)), 4, label="ring")
    return made, msgspec.structs.replace(of, gradients=gradients)


def hosts(cards: tuple[float, ...]) -> Cluster:
    given = {"cards_bit_per_s": cards} if len(cards) > 1 else {}
    return Cluster(
        hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=sum(cards), **given) for at in range(4))
    )


def busy_s(plan: Plan, graph, profile: Profile) -> list[float]:
    return [max(each[4]) for each in pieces(plan.buckets, graph, profile, workers=plan.workers)]


def gradients_of(profile: Profile) -> tuple[Gradient, ...]:
    return tuple(Gradient(each.name, each.shape, each.dtype) for each in profile.gradients)


def test_all_of_a_plan_is_in_parts_that_fit_the_smallest_window():
    """Broken: DeFT's schedule would starve a bucket that its own rule cuts; or elements would travel twice, or never."""
    cut = 0
    for seed in range(drawn.cases(150)):
        draw = random.Random(seed)  # noqa: S311
        plan, profile = uneven(draw)
        graph = link_graph(alternating(1e11, 10 ** draw.uniform(8.5, 10.5)), 4)
        factor = draw.choice((1.0, 1.5))
        made = fitted(plan, graph, profile, apart=False, capacity_factor=factor)
        smallest_s, largest_s = sorted(windows_s(plan, profile))
        longest_s = max(busy_s(plan, graph, profile))
        if made is None:
            assert longest_s > factor * largest_s
            assert "nor do parts fit" in starving(plan, graph, profile, capacity_factor=factor)
            continue
        assert list(findings(made, gradients_of(profile))) == []
        assert sorted(each.priority for each in made.buckets) == list(range(len(made.buckets)))
        assert max(busy_s(made, graph, profile)) <= factor * largest_s
        assert len(made.buckets) - len(plan.buckets) <= PARTS_MAX
        if longest_s < factor * smallest_s * 0.99:
            assert made.buckets == plan.buckets
        if len(made.buckets) == len(plan.buckets):
            continue
        cut += 1
        # What is cut into two would not fit as one.
        fits_s = smallest_s if max(busy_s(made, graph, profile)) <= factor * smallest_s else largest_s
        kept = {each.parts for each in made.buckets}
        for bucket, took_s in zip(plan.buckets, busy_s(plan, graph, profile), strict=True):
            assert (bucket.parts in kept) == (took_s <= factor * fits_s * 0.9999), seed
        schedule = deft(made, graph, profile, rate="linear", capacity_factor=factor)
        assert list(findings(msgspec.structs.replace(made, schedule=schedule, promise="uncorrected"))) == []
    assert cut > drawn.cases(150) // 10


def test_a_bucket_is_cut_no_more_often_than_windows_need():
    """Broken: each part more costs latency, which nobody would gain from."""
    profile = model(8, 100_000)
    large = msgspec.structs.replace(profile.gradients[-1], shape=(2_000_000,))
    profile = msgspec.structs.replace(profile, gradients=(*profile.gradients[:-1], large))
    each = [[gradient] for gradient in profile.gradients]
    plan = plan_of(buckets(each, AllReduce(algorithm="ring"), range(4)), 4, label="ring")
    graph = link_graph(alternating(1e11, 1e9), 4)
    made = fitted(plan, graph, profile, apart=False)
    assert made is not None
    smallest_s = min(windows_s(plan, profile))
    longest_s = max(busy_s(plan, graph, profile))
    # The rest of the plan is as it was.
    parts = made.buckets[7:]
    assert made.buckets[:7] == plan.buckets[:7]
    assert len(parts) == math.ceil(longest_s / smallest_s) > 1
    sizes = [each.elements for each in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == 2_000_000


def test_the_papers_size_of_parts_is_a_limit():
    """Broken: on a fast network, the paper's first step of three would be left out."""
    profile = model(2, PART_ELEMENTS + 2)
    each = [[gradient] for gradient in profile.gradients]
    plan = plan_of(buckets(each, AllReduce(algorithm="ring"), range(4)), 4, label="ring")
    made = fitted(plan, link_graph(alternating(1e13, 1e13), 4), profile, apart=False)
    assert made is not None
    assert [each.elements for each in made.buckets] == [PART_ELEMENTS // 2 + 1] * 4


def test_latency_that_no_part_escapes_is_refused_by_name():
    """Broken: with a network whose rounds take longer than computation, planning would go on cutting for ever, or say nothing."""
    far = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e6) for name in "abcd"))
    plan, profile = uneven(random.Random(3))  # noqa: S311
    graph = link_graph(far, 4)
    assert papers(plan, graph, profile, rate="linear", apart=False) is None
    said = starving(plan, graph, profile, capacity_factor=1.0)
    for part in (
        "no gap of computation is longer than 40.0 ms",
        "nor do parts fit",
        "would never be applied",
        "hint:",
    ):
        assert part in said


def test_each_card_is_a_link():
    """Broken: the paper's scheduler would fill one link with what two carry."""
    profile = model(8, 250_000)
    each = [[gradient] for gradient in profile.gradients]
    plan = plan_of(buckets(each, AllReduce(algorithm="ring"), range(4)), 4, label="ring")
    graph = link_graph(hosts(CARDS), 4)
    assert views(plan, graph) == (False, True)
    apart = ways.on_cards(plan, [at % 2 for at in range(8)], "")
    assert views(apart, graph) == (True,)
    alone = [busy_s(plan, link_graph(hosts((rate,)), 4), profile) for rate in CARDS]
    order, found = timed(apart, graph, profile)
    for at, (_, _, links_s) in zip(order, found, strict=True):
        assert links_s[at % 2] == pytest.approx(alone[at % 2][at], rel=1e-6)
        assert links_s[1 - at % 2] == math.inf
    # Striped, a bucket takes some of both at once.
    assert [len(each[2]) for each in timed(plan, graph, profile).buckets] == [1] * 8


def test_knapsacks_of_two_cards_make_more_updates_than_one():
    """Broken: DeFT's plan would leave the second card idle, or send a bucket on a card that it may not use."""
    profile = model(8, 250_000)
    each = [[gradient] for gradient in profile.gradients]
    plan = plan_of(buckets(each, AllReduce(algorithm="ring"), range(4)), 4, label="ring")
    graph = link_graph(hosts(CARDS), 4)
    made = papers(plan, graph, profile, rate="linear", apart=True)
    assert made is not None
    assert list(findings(msgspec.structs.replace(made, promise="uncorrected"))) == []
    cards = [bucket.cards for bucket in made.buckets]
    assert {(0,), (1,)} == set(cards)
    # The same buckets on the first card alone, the faster one.
    one = ways.on_cards(plan, [0] * 8, "")
    one = papers(one, graph, profile, rate="linear", apart=True)
    assert one is not None
    both, single = (steady(each, graph, profile) for each in (made, one))
    assert both.updates_per_iteration > 1.2 * single.updates_per_iteration
    assert both.iteration_s < 1.05 * single.iteration_s
    # A bucket that has one card already keeps it.
    first = tuple(
        msgspec.structs.replace(bucket, cards=(1,) if at == 0 else None)
        for at, bucket in enumerate(plan.buckets)
    )
    kept = papers(msgspec.structs.replace(plan, buckets=first), graph, profile, rate="linear", apart=True)
    assert kept is not None
    assert {each.cards for each in kept.buckets if "p0" in each.variables} == {(1,)}


def test_a_bucket_without_a_link_is_refused():
    """Broken: the scheduler would run without end."""
    with pytest.raises(UsageError, match="window"):
        _native.staged_schedule([(1.0, 2.0, [math.inf, math.inf])])

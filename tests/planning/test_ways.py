"""Cards of hosts with several: what buckets demand of each, which of them the planner gives a bucket, and what it refuses."""

import itertools
import random

import msgspec
import pytest

from hocket import _native
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.plan import AllReduce, Schedule
from hocket.errors import UsageError
from hocket.planning import ways
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.cost import Steps, pieces, predict_on
from hocket.planning.links import link_graph
from tests.planning.planner_inputs import model

CARDS = (330e6, 200e6)
PROFILE = model(8, 250_000)


def cluster(cards=CARDS, count=4):
    hosts = (
        Host(name=f"h{at}", bandwidth_bit_per_s=sum(cards), cards_bit_per_s=cards) for at in range(count)
    )
    return Cluster(hosts=tuple(hosts))


def plan():
    each = [[gradient] for gradient in PROFILE.gradients]
    return plan_of(buckets(each, AllReduce(algorithm="ring"), range(4)), 4, label="ring")


def predicted_s(made, graph):
    return predict_on(made.buckets, graph, PROFILE, workers=made.workers).step_s


def iteration_s(made, graph):
    """Of what buckets demand, by the model that cards are predicted with."""
    described = pieces(sorted(made.buckets, key=lambda each: each.priority), graph, PROFILE)
    end_s = PROFILE.forward_s + PROFILE.backward_s
    found = _native.schedule_steady(
        described, Schedule(), needed_s=[0.0] * 8, backward_end_s=end_s, step_s=PROFILE.step_s
    )
    return found[0]


def test_a_card_alone_is_a_network_of_its_own():
    """Buckets on one card would be predicted as if they had both, or as if others took some of it."""
    graph = link_graph(cluster(), 4)
    for card, rate in enumerate(CARDS):
        own = link_graph(cluster((rate,)), 4)
        alone = ways.on_cards(plan(), [card] * 8, "")
        assert predicted_s(alone, graph) == pytest.approx(iteration_s(plan(), own), rel=1e-6)


def test_many_plans_at_once_are_predicted_card_by_card():
    """Trials and builders would take a bucket on one card for one on all."""
    graph = link_graph(cluster(), 4)
    made = [plan(), ways.on_cards(plan(), [1] * 8, ""), ways.on_cards(plan(), [0, 1] * 4, "")]
    # The second card is the same link of the host, and slower with it.
    names = {"h0 out", "h0 in"}
    slower = graph.slowed({at: 3.0 for at, link in enumerate(graph.links) if link.name in names})
    for on in (graph, slower):
        assert Steps(made, PROFILE).on(on) == [predicted_s(each, on) for each in made]
    assert predicted_s(made[1], slower) > 1.5 * predicted_s(made[1], graph)
    with pytest.raises(UsageError, match="uses card 2, and all hosts have 2"):
        Steps([ways.on_cards(plan(), [2] * 8, "")], PROFILE).on(graph)


def test_all_cards_named_are_all_cards():
    """A plan that says which cards there are would be predicted slower or faster than one that says nothing."""
    graph = link_graph(cluster(), 4)
    both = plan()
    both = msgspec.structs.replace(
        both, buckets=tuple(msgspec.structs.replace(each, cards=(0, 1)) for each in both.buckets)
    )
    assert predicted_s(both, graph) == pytest.approx(iteration_s(plan(), graph), rel=0.02)
    # Where another bucket keeps to a card, too.
    first, *others = both.buckets
    mixed = [msgspec.structs.replace(first, cards=(1,)), *others]
    for piece in pieces(mixed, graph, PROFILE)[1:]:
        fast, slow = piece[4][:2]
        assert fast == pytest.approx(slow, rel=1e-6)


def test_further_cards_are_not_behind_a_trunk():
    """Traffic of a second card would be predicted to wait for racks' trunks, which it does not cross."""
    racks = (Rack(name="a", uplink_bit_per_s=50e6), Rack(name="b", uplink_bit_per_s=50e6))
    hosts = tuple(
        msgspec.structs.replace(host, rack="ab"[at // 2]) for at, host in enumerate(cluster().hosts)
    )
    graph = link_graph(Cluster(hosts=hosts, racks=racks), 4)
    steps_s = [predicted_s(ways.on_cards(plan(), [card] * 8, ""), graph) for card in (0, 1)]
    assert steps_s[0] > 2 * steps_s[1]
    # What the first card carries beside the second is gained.
    both = [msgspec.structs.replace(each, cards=(0, 1)) for each in plan().buckets]
    assert predicted_s(msgspec.structs.replace(plan(), buckets=tuple(both)), graph) < min(steps_s)
    assert ways.chosen(plan(), graph, PROFILE) == plan()


def test_the_assignment_ends_as_early_as_any():
    """A card would idle while another is late."""
    rolled = random.Random(3)  # noqa: S311  # no secret
    for _ in range(60):
        links = rolled.randint(2, 3)
        busy_s = [[rolled.uniform(0.01, 0.2) for _ in range(links)] for _ in range(rolled.randint(1, 7))]

        def done_s(chosen, busy_s=busy_s, links=links):
            return max(
                sum(each[link] for each, own in zip(busy_s, chosen, strict=True) if own == link)
                for link in range(links)
            )

        best_s = min(done_s(chosen) for chosen in itertools.product(range(links), repeat=len(busy_s)))
        assert done_s(ways.assigned(busy_s)) <= best_s * 1.002


def test_the_planner_stripes_where_that_is_as_fast():
    """Cards of their own would be asked for without need, and break where a host has one card less."""
    graph = link_graph(cluster(), 4)
    striped, one, assigned = ways.candidates(plan(), graph, PROFILE)
    assert {each.cards for each in one.buckets} == {(0,)}
    assert {each.cards for each in assigned.buckets} == {(0,), (1,)}
    steps_s = [iteration_s(striped, graph), predicted_s(assigned, graph), predicted_s(one, graph)]
    assert steps_s == sorted(steps_s)
    assert ways.chosen(plan(), graph, PROFILE) == plan()
    single = link_graph(cluster((530e6,)), 4)
    assert ways.chosen(plan(), single, PROFILE) == plan()


def test_cards_that_are_not_there_are_refused():
    """A plan would be predicted on a card that no host has."""
    third = ways.on_cards(plan(), [2] * 8, "")
    with pytest.raises(UsageError, match=r"bucket 0 uses card 2, and all hosts have 2\nhint: "):
        predicted_s(third, link_graph(cluster(), 4))

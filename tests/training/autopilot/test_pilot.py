"""The pilot on virtual networks: what it finds, how soon, what it leaves, and that it goes quiet."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.training.autopilot.pilot import Pilot, Seen
from hocket.training.autopilot.trial import Candidate
from tests.training.autopilot.simulated import World

RACKS = {"ring": 3.6, "two-level": 1.2}
HALVED = {"ring": 7.1, "two-level": 2.3}
UNEVEN_HALVED = {"ring": 1.4, "two-level": 2.3}
"""A network on which another plan is the best."""


def switching(*phases):
    """Networks in turn: (until step, network)…"""
    return lambda step: next(network for until, network in phases if step <= until)


seeds = st.integers(0, 10_000)


@settings(max_examples=200)
@given(seed=seeds, meeting=st.integers(1, 3), knows=st.booleans())
def test_a_better_plan_is_in_force_within_twenty_steps(seed, meeting, knows):
    """A user with nothing but the two lines would train three times as long as necessary."""
    world = World(lambda _: RACKS, "ring", noise=0.1, seed=seed, knows_network=knows).run(60, meeting)
    assert world.in_force.index("two-level") <= (20 if meeting < 3 else 26)
    assert set(world.in_force[30:]) == {"two-level"}
    adopted = next(each for each in world.changes if each.what == "adopted")
    assert adopted.label == "two-level"
    assert adopted.epoch == 1
    assert abs(adopted.before_s / 3.6 - 1) < 0.1
    assert "was 3." in adopted.why


@settings(max_examples=200)
@given(seed=seeds, meeting=st.integers(1, 2))
def test_a_wrong_plan_is_left_within_fifteen_steps_and_not_tried_again_at_once(seed, meeting):
    """A job would stay with a plan that was only predicted to be fast, or go to and fro."""
    lies = {"ring": 3.6, "two-level": 1.2}
    world = World(
        lambda _: {"ring": 3.6, "two-level": 5.0},
        "ring",
        predicts=lambda _: lies,
        noise=0.1,
        seed=seed,
    ).run(120, meeting)
    began = world.in_force.index("two-level")
    assert set(world.in_force[began + 15 : began + 60]) == {"ring"}
    left = next(each for each in world.changes if each.what == "left")
    assert "two-level takes 5." in left.why or "two-level takes 4." in left.why
    assert "predicted 1.20 s" in left.why
    assert world.what().count("adopted") == 1


@settings(max_examples=200)
@given(seed=seeds)
def test_a_trunk_that_is_halved_and_restored_is_noticed_each_time(seed):
    """A job would train on with a plan for a network that is no longer there."""
    network = switching((60, RACKS), (140, UNEVEN_HALVED), (1000, RACKS))
    world = World(network, "two-level", noise=0.1, seed=seed).run(220)
    assert any(60 < step <= 90 for step in world.plans)
    assert any(140 < step <= 170 for step in world.plans)
    for first, last in ((105, 140), (190, 220)):
        best = min(network(first + 1).values())
        assert world.median_s(first, last) <= 1.1 * best


@settings(max_examples=200)
@given(seed=seeds)
def test_of_steps_that_are_as_long_more_updates_are_better(seed):
    """A trunk that is restored carries all gradients again, which a schedule that merges them would never use."""
    network, updates = {"merged": 1.0, "each": 1.0}, {"merged": 0.5}
    for first in network:
        world = World(lambda _: network, first, updates=updates, noise=0.02, seed=seed)
        world.predicts = lambda _, first=first: {"each" if first == "merged" else "merged": 1.0, first: 1.0}
        assert set(world.run(60).in_force[30:]) == {"each"}


@settings(max_examples=200)
@given(seed=seeds)
def test_a_faster_network_is_noticed_by_what_connections_carry(seed):
    """A plan that hides its communication takes as long on a faster network, on which another one would be faster."""
    network = switching((60, {"rounded": 1.2, "whole": 2.0}), (1000, {"rounded": 1.2, "whole": 0.9}))
    world = World(network, "rounded", noise=0.04, seed=seed)
    world.moved = lambda step: step > 63 and not any(look > 60 for look in world.looks)
    world.run(140)
    assert any(60 < step <= 90 for step in world.plans)
    assert set(world.in_force[100:]) == {"whole"}
    assert any("connections carry other rates" in each.why for each in world.changes)


@settings(max_examples=30)
@given(seed=seeds)
def test_connections_whose_rates_always_change_are_asked_about_less_and_less(seed):
    """A network that others use, too, would be looked at for ever."""
    world = World(lambda _: RACKS, "two-level", noise=0.1, seed=seed, moved=lambda _: True).run(4000)
    assert set(world.in_force) == {"two-level"}
    assert len(world.looks) <= 10


@settings(max_examples=200)
@given(seed=seeds)
def test_where_the_best_plan_stays_the_best_it_stays(seed):
    """A change of the network would cost a change of plans, though no other plan is better."""
    network = switching((60, RACKS), (140, HALVED), (1000, RACKS))
    world = World(network, "two-level", noise=0.1, seed=seed).run(220)
    assert set(world.in_force) == {"two-level"}
    assert any(60 < step <= 90 for step in world.plans)
    assert any(140 < step <= 170 for step in world.plans)


@settings(max_examples=30)
@given(seed=seeds)
def test_where_nothing_can_be_gained_it_goes_quiet(seed):
    """A small model would pay for a pilot that cannot help it."""
    tiny = {"in place": 0.003, "other": 0.0031}
    world = World(lambda _: tiny, "in place", noise=0.1, seed=seed).run(4000)
    assert set(world.in_force) == {"in place"}
    assert len(world.plans) <= 10
    assert len(world.looks) <= 9


@settings(max_examples=100)
@given(
    seed=seeds,
    true=st.lists(st.floats(0.5, 2.0), min_size=2, max_size=5),
    said=st.lists(st.floats(0.5, 2.0), min_size=5, max_size=5),
)
def test_it_ends_with_a_plan_that_is_no_worse_than_the_first(seed, true, said):
    """Whatever the planner says, a job would end slower than it began."""
    names = [f"plan {at}" for at in range(len(true))]
    network = dict(zip(names, true, strict=True))
    lies = dict(zip(names, said, strict=False))
    world = World(lambda _: network, names[0], predicts=lambda _: lies, noise=0.05, seed=seed).run(400)
    assert world.median_s(300, 400) <= 1.06 * true[0]
    assert world.what().count("adopted") <= 6


@settings(max_examples=200)
@given(seed=seeds)
def test_steps_that_take_longer_than_predicted_cast_doubt_on_the_network(seed):
    """A wrong cluster file, or one of yesterday, would decide for the whole training."""
    yesterday = {"ring": 1.0, "two-level": 1.5}
    world = World(switching((0, yesterday), (1000, RACKS)), "ring", noise=0.1, seed=seed).run(60)
    assert world.looks
    assert set(world.in_force[40:]) == {"two-level"}


def test_nothing_is_decided_while_an_epoch_is_on_its_way():
    """Ranks would part company."""
    said = []
    pilot = Pilot(Candidate("a", "a"), knows_network=True, say=said.append)
    for step in range(50):
        assert pilot.observe(Seen(step=step, settled=False, step_s=(1.0,))) is None
    assert not said

"""What rank 0 makes of profiles and looks: plans for the job's ranks, on links that are no slower than steps have shown."""

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan_check import check
from hocket.artefacts.promise import EXACT, ROUNDED, Promise
from hocket.planning import schedules
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.for_job import ForJob
from hocket.planning.ordering.classes import reordered
from hocket.training.autopilot.knowledge import Knowledge, differs
from hocket.training.autopilot.plans import key_of
from hocket.training.autopilot.stopwatch import Times, profile_of

MODEL = tuple(Gradient(f"w{at}", (1_000_000,), "f32") for at in range(4))
TIMES = Times(
    optimizer_s=0.01,
    forward_s=0.05,
    backward_s=0.1,
    ready_s={f"w{at}": 0.15 - 0.02 * at for at in range(4)},
)


def racks(trunk=1e8, names="abab"):
    return Cluster(
        hosts=tuple(Host(name=f"h{at}", rack=rack, bandwidth_bit_per_s=1e9) for at, rack in enumerate(names)),
        racks=tuple(Rack(name=name, uplink_bit_per_s=trunk) for name in "ab"),
    )


HOSTS = ("h2", "h0", "h3", "h1")
"""By rank: in another order than in the cluster."""


def ring():
    return default_plan(MODEL[::-1], by_hosts(HOSTS))


def test_plans_are_for_the_jobs_ranks_wherever_their_hosts_stand():
    """A job whose hosts are listed in another order would cross the trunk at every step."""
    knowledge = Knowledge(HOSTS, MODEL, racks(), EXACT, times={0: TIMES})
    plan, ring_s = knowledge.proposal(ring(), 3.6, {})
    of_rack = [{"h0": 0, "h2": 0, "h1": 1, "h3": 1}[HOSTS[rank]] for rank in plan.buckets[0].order]
    assert of_rack in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert plan.predicted_step_s < 0.8 * ring_s
    # What is predicted of its own plan is what it carries as its prediction.
    job = ForJob.of(racks(), HOSTS)
    again_s = job.predicted_s(plan, profile_of([TIMES], MODEL, "", 4))
    assert again_s == pytest.approx(plan.predicted_step_s, rel=0.02)


def test_links_are_no_slower_than_steps_have_shown():
    """A look that shares a trunk with training would decide for a network that is not there."""
    true = Knowledge(HOSTS, MODEL, racks(), EXACT, times={0: TIMES})
    _, ring_s = true.proposal(ring(), 1e9, {})
    mistaken = Knowledge(HOSTS, MODEL, racks(trunk=2e7), EXACT, times={0: TIMES})
    _, predicted_s = mistaken.proposal(ring(), ring_s, {})
    assert predicted_s == pytest.approx(ring_s, rel=0.1)
    rates = [rack.uplink_bit_per_s for rack in mistaken.cluster.racks]
    assert rates == pytest.approx([1e8, 1e8], rel=0.15)
    # A step that took long shows nothing.
    assert [rack.uplink_bit_per_s for rack in true.cluster.racks] == [1e8, 1e8]


def test_links_are_no_slower_than_what_connections_carried():
    """A look that found a trunk slow would decide, though training sends more than that over it."""
    mistaken = Knowledge(HOSTS, MODEL, racks(trunk=2e7), EXACT, times={0: TIMES})
    # Ranks 0 and 1 are on h2 and h0, of one rack; ranks 0 and 2 are on h2 and h3.
    mistaken.proposal(ring(), 1e9, {(0, 2): 8e7, (0, 1): 5e8})
    rates = [rack.uplink_bit_per_s for rack in mistaken.cluster.racks]
    assert rates == pytest.approx([8e7, 8e7], rel=0.06)
    assert {host.bandwidth_bit_per_s for host in mistaken.cluster.hosts} == {1e9}


def test_of_a_plan_that_was_given_nothing_but_orders_changes():
    """A user's plan would be replaced, since he asked for better orders."""
    # To and fro between the racks.
    given = reordered(ring(), [(0, 2, 1, 3)])
    knowledge = Knowledge(HOSTS, MODEL, racks(), EXACT, given=given, times={0: TIMES})
    plan, given_s = knowledge.proposal(given, 3.6, {})
    of_rack = [{"h0": 0, "h2": 0, "h1": 1, "h3": 1}[HOSTS[rank]] for rank in plan.buckets[0].order]
    assert of_rack in ([0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1])
    assert plan.predicted_step_s < 0.8 * given_s
    assert [(each.route, each.parts) for each in plan.buckets] == [
        (each.route, each.parts) for each in given.buckets
    ]


def test_turns_are_proposed_as_far_as_the_promise_goes():
    """A job that was told that gradients may be late would wait for them all the same, or they would be later than allowed."""
    promise = Promise("delayed", merge=3, delay=1)
    knowledge = Knowledge(HOSTS, MODEL, racks(), promise, times={0: TIMES})
    plan, _ = knowledge.proposal(ring(), 3.6, {})
    assert schedules.merge_of(plan.schedule) in (2, 3)
    assert plan.schedule.delay_max == 1
    check(plan)
    synchronous, _ = Knowledge(HOSTS, MODEL, racks(), ROUNDED, times={0: TIMES}).proposal(ring(), 3.6, {})
    assert plan.predicted_step_s < 0.6 * synchronous.predicted_step_s
    # What is predicted of it once it is in force is what was promised.
    again, now_s = knowledge.proposal(plan, plan.predicted_step_s, {})
    assert now_s == pytest.approx(plan.predicted_step_s, rel=0.02)
    assert key_of(again) == key_of(plan)
    assert [rack.uplink_bit_per_s for rack in knowledge.cluster.racks] == pytest.approx([1e8, 1e8], rel=0.02)


def test_links_are_no_slower_than_merged_gradients_have_shown():
    """A look that shares a trunk with late gradients would decide for a network that is not there."""
    promise = Promise("delayed", merge=3, delay=1)
    true = Knowledge(HOSTS, MODEL, racks(), promise, times={0: TIMES})
    plan, _ = true.proposal(ring(), 1e9, {})
    mistaken = Knowledge(HOSTS, MODEL, racks(trunk=2e7), promise, times={0: TIMES})
    mistaken.proposal(plan, plan.predicted_step_s, {})
    rates = [rack.uplink_bit_per_s for rack in mistaken.cluster.racks]
    # Trunks rest for a part of each period, and steps do not tell for which.
    assert min(rates) > 0.6e8
    assert max(rates) < 1.02e8


def test_after_a_retreat_nothing_is_merged_or_late():
    """A job would go back to what has just gone wrong, or keep its buckets for a schedule that it no longer has."""
    knowledge = Knowledge(HOSTS, MODEL, racks(), Promise("delayed", merge=3, delay=1), times={0: TIMES})
    plan, _ = knowledge.proposal(ring(), 3.6, {})
    knowledge.retreat()
    assert not knowledge.delays
    after, now_s = knowledge.proposal(plan, 3.6, {})
    assert not after.schedule.turns
    assert now_s > 1.5 * plan.predicted_step_s


def test_a_guard_that_knows_too_little_lets_nothing_pass():
    """A job would end, since nobody logs its loss."""
    knowledge = Knowledge(
        HOSTS, MODEL, racks(), Promise("delayed", merge=3, delay=1), times={0: TIMES}, guard="paper"
    )
    plan, _ = knowledge.proposal(ring(), 3.6, {})
    assert not plan.schedule.turns


def test_gradients_that_travel_as_rows_are_never_late():
    """Sessions refuse such plans: a job would end with an error that its user did not cause."""
    sparse = (*MODEL, Gradient("words", (1000, 8), "f32", sparse=True))
    assert not Knowledge(HOSTS, sparse, racks(), Promise("delayed", delay=1)).delays
    assert not Knowledge(HOSTS, MODEL, racks(), ROUNDED).delays
    assert not Knowledge(HOSTS, MODEL, racks(), Promise("delayed", delay=1), given=ring()).delays


def test_a_trunk_that_was_halved_is_another_network_and_noise_is_none():
    """A job would take every look for a change, or none."""
    assert differs(racks(), racks(trunk=5e7))
    assert differs(racks(), racks(names="aabb"))
    assert not differs(racks(), racks(trunk=0.9e8))


def test_plans_that_do_the_same_have_one_key():
    """A job would change to the plan that it has."""
    other = by_hosts(HOSTS)
    assert key_of(ring()) == key_of(default_plan(MODEL[::-1], other))
    assert key_of(ring()) != key_of(default_plan(MODEL, other))

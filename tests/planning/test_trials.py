"""The search by trials, on networks that differ from their cluster file."""

from __future__ import annotations

import math
import random

import pytest

from benches.emulated import hosts
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT
from hocket.errors import UsageError
from hocket.planning.learned import learned
from hocket.planning.question import Question, question_of
from hocket.planning.search import plan as planned
from hocket.planning.trials import Trials
from tests.planning.planner_inputs import alternating, model

pytestmark = pytest.mark.hosts

MODEL = model(8, 400_000)
NOISE = 0.03


def question(cluster: Cluster, profile: Profile = MODEL) -> Question:
    return question_of(cluster, profile, len(cluster.hosts), EXACT, None)


def incumbent(cluster: Cluster) -> Plan:
    return planned(cluster, MODEL, len(cluster.hosts))


def searched(said: Cluster, true: Cluster, *, trials_max: int = 20, noise: float = 0.0) -> Trials:
    """Trials for the cluster that the file says, on the true one."""
    world, draw = question(true), random.Random(4)  # noqa: S311
    trials = Trials(question(said), incumbent(said), seed=3, trials_max=trials_max)
    while (plan := trials.next()) is not None:
        step_s = world.predicted(plan).step_s
        trials.observe(plan, step_s * (1 + noise * draw.gauss(0, 1)), noise * step_s)
    return trials


SLOW_TRUNK = alternating(trunk_bit_per_s=1e9), alternating(trunk_bit_per_s=1e8)
SLOW_HOST = hosts([1e9] * 4), hosts([2e8, 1e9, 1e9, 1e9])
FAST_TRUNK = alternating(trunk_bit_per_s=1e8), alternating(trunk_bit_per_s=1e9)
FAST_HOST = hosts([1e8, 1e9, 1e9, 1e9]), hosts([1e9] * 4)
FAST_HOSTS = hosts([3e8, 3e8, 1e9, 1e9]), hosts([1e9] * 4)


@pytest.mark.parametrize(
    ("said", "true", "noise"),
    [
        *((*each, NOISE) for each in (SLOW_TRUNK, SLOW_HOST, FAST_TRUNK, FAST_HOST, FAST_HOSTS)),
        (*SLOW_TRUNK, 0.0),
        (*FAST_HOST, 0.0),
    ],
)
def test_trials_find_the_plan_of_the_network_as_it_is(said: Cluster, true: Cluster, noise: float) -> None:
    """Broken: a cluster file that is wrong about a link would cost a job time for ever."""
    trials = searched(said, true, noise=noise)
    least_s = planned(true, MODEL, len(true.hosts)).predicted_step_s
    assert question(true).predicted(trials.best).step_s <= (1.02 + 2 * noise) * least_s


def test_steps_are_predicted_with_links_as_slow_as_they_are() -> None:
    """Broken: what a job has found would be of no use to the next one."""
    said, true = SLOW_TRUNK
    known = learned(question(said), (), searched(said, true).belief)
    plans = question(said).solved(0).uniform()
    predicted = known.steps_s(plans, known.draws(1, seed=0))[0]
    measured = [question(true).predicted(plan).step_s for plan in plans]
    assert predicted == pytest.approx(measured, rel=0.1)
    assert question(said).predicted(plans[0]).step_s < 0.7 * measured[0]


def test_a_belief_saves_trials() -> None:
    """Broken: each job would begin from nothing."""
    said, true = SLOW_TRUNK
    belief = searched(said, true).belief
    world = question(true)
    least_s = planned(true, MODEL, 4).predicted_step_s
    trials = Trials(question(said), incumbent(said), prior=belief, trials_max=3)
    while (plan := trials.next()) is not None:
        trials.observe(plan, world.predicted(plan).step_s)
    assert world.predicted(trials.best).step_s <= 1.02 * least_s


def test_the_incumbent_is_first_and_nothing_is_tried_twice() -> None:
    """Broken: trials would be compared with nothing, or spent on what is known."""
    said, true = SLOW_HOST
    trials = searched(said, true)
    assert trials.tried[0].plan == incumbent(said)
    buckets = [each.plan.buckets for each in trials.tried]
    assert len(set(buckets)) == len(buckets) <= 21
    assert all(each.expected_s for each in trials.tried[1:])


def test_the_same_measurements_give_the_same_trials() -> None:
    """Broken: nobody could reproduce a search."""
    first, second = (searched(*SLOW_HOST, trials_max=8) for _ in range(2))
    assert first.tried == second.tried
    assert first.ended == second.ended


def test_a_search_ends_where_predictions_are_right() -> None:
    """Broken: a job would go on trying plans that promise nothing."""
    cluster = alternating()
    trials = searched(cluster, cluster, trials_max=200)
    assert len(trials.tried) < 40
    assert trials.ended is not None
    assert "expected to save" in trials.ended


def test_the_budget_ends_a_search() -> None:
    """Broken: a search would take longer than it was given."""
    trials = searched(*SLOW_TRUNK, trials_max=2)
    assert trials.ended == "all 2 trials were made"
    assert len(trials.tried) == 3


@pytest.mark.parametrize("slower", [2.5, 5.0])
def test_plans_that_are_slower_than_any_network_explains_are_tried_once(slower: float) -> None:
    """Broken: they would be expected to be the best for ever, and rank 0 would look for another one until the job ends."""
    cluster = alternating()
    world = question(cluster)
    trials = Trials(world, incumbent(cluster), seed=3, trials_max=40)
    best_s = world.predicted(incumbent(cluster)).step_s
    while (plan := trials.next()) is not None:
        step_s = world.predicted(plan).step_s
        trials.observe(plan, slower * step_s if len(trials.tried) % 2 else max(step_s, slower * best_s))
    assert trials.ended is not None
    buckets = [each.plan.buckets for each in trials.tried]
    assert len(set(buckets)) == len(buckets)


def test_one_rank_has_nothing_to_search() -> None:
    """Broken: a search of a job of one rank would end in a traceback or never."""
    alone = hosts([1e9])
    trials = searched(alone, alone)
    assert trials.best == incumbent(alone)
    assert trials.ended == "one rank sends nothing"


@pytest.mark.parametrize(
    "times", [(0.0, 0.0), (math.nan, 0.0), (math.inf, 0.0), (1.0, -1.0), (1.0, math.nan)]
)
def test_times_that_are_none_are_refused(times: tuple[float, float]) -> None:
    """Broken: a clock that fails once would decide the search."""
    cluster = hosts([1e9] * 2)
    trials = Trials(question(cluster), incumbent(cluster))
    with pytest.raises(UsageError, match="no time"):
        trials.observe(incumbent(cluster), *times)


def test_plans_that_come_from_elsewhere_count() -> None:
    """Broken: what an autopilot measures beside the search would be lost."""
    cluster = alternating()
    trials = Trials(question(cluster), incumbent(cluster))
    other = question(cluster).solved(0).uniform()[0]
    trials.observe(other, 0.01)
    trials.observe(incumbent(cluster), 0.5)
    assert trials.best == other


def test_a_measurement_that_is_unsure_does_not_win() -> None:
    """Broken: of many noisy trials, the luckiest would be kept."""
    cluster = alternating()
    asked = question(cluster)
    trials = Trials(asked, incumbent(cluster))
    best_s = asked.predicted(incumbent(cluster)).step_s
    slow = max(asked.solved(0).uniform(), key=lambda plan: plan.predicted_step_s)
    trials.observe(incumbent(cluster), best_s, 0.01 * best_s)
    trials.observe(slow, 0.98 * best_s, 3 * best_s)
    assert trials.best == incumbent(cluster)


def test_more_measurements_of_a_plan_are_one_trial() -> None:
    """Broken: an incumbent that is measured in turn with every candidate would use up the budget."""
    cluster = alternating()
    trials = Trials(question(cluster), incumbent(cluster), trials_max=1)
    for _ in range(10):
        trials.observe(incumbent(cluster), 0.2, 0.001)
    assert trials.ended is None
    assert trials.next() is not None

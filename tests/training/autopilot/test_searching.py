"""A search in training: what trials cost, what they decide under noise and drift, and what the proposer is told."""

from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts.promise import EXACT
from hocket.training.autopilot.knowledge import Knowledge
from hocket.training.autopilot.searching import Searching
from tests.training.autopilot.simulated import World
from tests.training.autopilot.test_knowledge import HOSTS, MODEL, TIMES, racks, ring

seeds = st.integers(0, 10_000)
NAMES = [f"plan {at}" for at in range(24)]


def trials_of(world):
    """(name, kept, before, after) of each."""
    found, name = [], None
    begun = False
    for each in world.changes:
        begun = begun or each.what == "searching"
        if each.what == "adopted":
            name = each.label
        elif each.what in ("kept", "left") and begun:
            found.append((name, each.what == "kept", each.before_s, each.after_s))
    return found


def test_a_search_tries_all_and_keeps_one_within_two_percent_of_the_best():
    """A job that was asked to search would end with a plan that was not the fastest it had tried."""
    over_best = []
    for seed in range(120):
        drawn = np.random.default_rng(seed)
        network = {name: drawn.uniform(0.8, 1.6) for name in NAMES} | {"first": 1.2}
        world = World(lambda _, own=network: own, "first", noise=0.03, seed=seed, candidates=iter(NAMES))
        world.predicts = lambda known: dict.fromkeys(known, 1.2)
        world.run(1200)
        assert [name for name, *_ in trials_of(world)] == NAMES
        assert world.what().count("searching") == world.what().count("searched") == 1
        ended = next(each for each in world.changes if each.what == "searched")
        assert ended.why == "nothing is left"
        assert ended.after_s == pytest.approx(network[world.in_force[ended.step]], rel=0.03)
        over_best.append(network[world.in_force[-1]] / min(network.values()))
    over_best.sort()
    assert over_best[int(0.95 * len(over_best))] <= 1.02
    assert over_best[-1] <= 1.04


@pytest.mark.parametrize("seed", range(30))
def test_twenty_strategies_take_no_more_than_three_hundred_steps(seed):
    """A search would outlast the training that it is to speed up."""
    network = {name: 1.0 + 0.12 * (at % 5) for at, name in enumerate(NAMES)} | {"first": 1.3}
    world = World(lambda _: network, "first", noise=0.03, seed=seed, candidates=iter(NAMES))
    world.predicts = lambda _: dict.fromkeys(network, 1.3)
    world.run(340)
    began = next(each.step for each in world.changes if each.what == "searching")
    ended = [each.step for each in world.changes if each.what in ("kept", "left") and each.step > began]
    assert sum(step <= began + 300 for step in ended) >= 20


@settings(max_examples=50)
@given(seed=seeds)
def test_a_hopeless_candidate_is_stopped_after_three_steps(seed):
    """A trial would cost a user twelve steps that take ten times as long."""
    network = {"first": 1.0, "slow": 10.0}
    world = World(lambda _: network, "first", noise=0.03, seed=seed, candidates=iter(["slow"]))
    world.predicts = lambda _: {"first": 1.0, "slow": 1.0}
    world.run(80)
    # The first step of an epoch is no measure, and going back takes two.
    assert world.in_force.count("slow") <= 3 + 1 + 2
    assert world.in_force[-1] == "first"


@settings(max_examples=50)
@given(seed=seeds, drift=st.floats(0.6, 1.6))
def test_a_drift_of_the_machine_does_not_decide(seed, drift):
    """A search on a machine that gets slower would keep what it tried first, and on one that gets faster what it tried last."""

    def network(step):
        slower = drift ** (step / 400)
        return {name: slower * (1.0 + 0.1 * at) for at, name in enumerate(NAMES[:6])} | {
            "first": 1.25 * slower
        }

    world = World(network, "first", noise=0.02, seed=seed, candidates=iter(NAMES[5::-1]))
    world.predicts = lambda known: dict.fromkeys(known, 1.0)
    world.run(400)
    assert world.in_force[-1] == "plan 0"


def test_after_a_search_the_job_watches_its_network_again():
    """A change of the network would never be noticed any more."""
    slow = {"first": 1.0, "other": 0.7}
    fast = {"first": 0.5, "other": 2.0}
    world = World(lambda step: slow if step < 150 else fast, "first", noise=0.03, candidates=iter(["other"]))
    world.predicts = lambda known: known if known == fast else dict.fromkeys(known, 1.0)
    world.run(260)
    assert world.in_force[149] == "other"
    assert world.in_force[-1] == "first"


class Recorder:
    """Proposes what it is given, and takes down what it is told."""

    def __init__(self, plans):
        self._plans, self.told, self.ended = iter(plans), [], None

    def next(self):
        plan = next(self._plans, None)
        self.ended = "no gain is expected" if plan is None else None
        return plan

    def observe(self, plan, measured_s, error_s):
        self.told.append((plan, measured_s, error_s))


def knowledge_with(recorder):
    knowledge = Knowledge(HOSTS, MODEL, racks(), EXACT, times={0: TIMES}, search_s=60.0)
    knowledge.proposer = lambda question, incumbent, prior: recorder
    knowledge.proposal(ring(), 3.6, {})
    return knowledge


def test_candidates_are_for_the_jobs_ranks_and_results_for_the_planners():
    """A candidate would run in the order of the cluster file, and the proposer would learn about another plan."""
    knowledge = knowledge_with(Recorder([]))
    placed = knowledge.searching(ring()).job.placed(ring())
    recorder = Recorder([placed])
    search = knowledge_with(recorder).searching(ring())
    assert search.next() == ring()
    search.tried(2.0, 1.0, 0.1, kept=True)
    assert recorder.told == [(placed, 1.0, 0.1)]
    assert search.next() is None
    assert search.ended == "no gain is expected"


def test_a_trial_counts_relative_to_the_plan_in_force():
    """Candidates tried while the machine was slow would look slow for ever."""
    recorder = Recorder([ring()] * 4)
    search = knowledge_with(recorder).searching(ring())
    counted = []
    for before_s, after_s, kept in ((1.0, 0.8, True), (1.6, 1.2, False), (1.6, 0.8, True), (0.8, 0.8, False)):
        search.next()
        counted.append(search.tried(before_s, after_s, 0.02 * after_s, kept=kept).measured_s)
    assert counted == pytest.approx([0.8, 0.6, 0.4, 0.4])
    assert [told[1] for told in recorder.told] == counted
    assert median(told[2] / told[1] for told in recorder.told) == pytest.approx(0.02)


def test_no_trial_begins_when_the_time_is_over():
    """A search of twenty minutes would go on for as long as something can be tried."""
    now_s = [5.0]
    knowledge = knowledge_with(Recorder([ring()] * 9))
    search = Searching(
        knowledge.searching(ring()).job, knowledge.proposer(None, None, None), 1200.0, clock=lambda: now_s[0]
    )
    assert search.next() is not None
    now_s[0] = 1204.0
    assert search.next() is not None
    now_s[0] = 1205.0
    assert search.next() is None
    assert search.ended == "its 20 minutes are over"


def test_those_that_are_left_search_for_the_time_that_is_left():
    """A job that often loses ranks would never stop trying plans."""
    now_s = [5.0]
    knowledge = knowledge_with(Recorder([ring()] * 9))
    search = Searching(
        knowledge.searching(ring()).job, knowledge.proposer(None, None, None), 60.0, clock=lambda: now_s[0]
    )
    now_s[0] = 30.0
    assert search.left_s == pytest.approx(35.0)
    knowledge.search_s = search.left_s
    left = knowledge.among(SimpleNamespace(hosts=HOSTS[:3]), ring())
    assert (left.search_s, left.given) == (pytest.approx(35.0), None)
    now_s[0] = 90.0
    assert search.left_s == 0.0


def test_what_ranks_refuse_is_not_tried_again():
    """A search whose favourite cannot be compiled would propose it for ever."""
    recorder = Recorder([ring()] * 40)
    search = knowledge_with(recorder).searching(ring())
    assert search.next() is not None
    search.refused()
    assert search.next() is None
    assert search.ended == "20 plans were refused"

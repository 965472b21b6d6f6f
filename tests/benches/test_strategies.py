"""The rows of `python -m benches strategies` that need no testbed, small."""

from __future__ import annotations

import random

import pytest

from benches.strategies import exhaustive, noisy, paper, ranking, sampled
from benches.strategies.rows import ROWS
from hocket.planning.builders import BUILDERS
from hocket.planning.learned import learned
from hocket.planning.search import considered

pytestmark = pytest.mark.tools


def test_the_exhaustive_oracle_is_no_worse_than_the_search() -> None:
    """Broken: the search would be compared with less than all plans."""
    draw = random.Random(2)  # noqa: S311
    for _ in range(6):
        question = exhaustive.case(draw)
        found = question.solved(200, splits=False)
        if exhaustive.strategies(len(question.profile.gradients), len(found.solution.proposals)) > 5_000:
            continue
        least_s = exhaustive.best_s(question, found)
        assert found.solution.bound_s * (1 - 1e-9) <= least_s <= found.solution.step_s * (1 + 1e-9)


def test_strategies_are_counted_as_they_are_enumerated() -> None:
    """Broken: cases that take hours would be taken for small ones."""
    # Three variables on two routes: one bucket, three ways to make two in two orders, three in six orders.
    assert exhaustive.strategies(3, 2) == 2 + 3 * 2 * 4 + 6 * 8


def test_corrections_from_trials_rank_plans_better() -> None:
    """Broken: a search would learn nothing from its trials."""
    found = sampled.samples(sampled.message_by_message, ["star"])[0]
    kept, corrected = ranking.after_trials(found)
    assert len(kept.plans) == sampled.PLANS - ranking.TRIALS
    assert ranking.pairwise(corrected, kept.steps_s) > 0.94
    assert ranking.pairwise(corrected, kept.steps_s) > ranking.pairwise(ranking.predicted(kept), kept.steps_s)


def test_pairs_that_are_equally_long_do_not_count() -> None:
    """Broken: noise between equal plans would look like wrong predictions."""
    assert ranking.pairwise([1.0, 2.0, 3.0], [1.0, 1.01, 3.0]) == 1.0
    assert ranking.pairwise([2.0, 1.0], [1.0, 3.0]) == 0.0


def test_trials_in_noisy_worlds_are_as_good_as_another_way_s() -> None:
    """Broken: the benchmark of the search would compare ways that do not search. In one world, noise may decide."""
    ratios = []
    for seed in range(3):
        case = noisy.Case(noisy.CLUSTERS["three racks"], noisy.MODELS["even"], seed=seed)
        first_s = case.step_s(None, 0)
        other_s, trials_s = case.step_s(noisy.OTHERS[0][1], 5), case.step_s(noisy._trials, 10)
        assert max(other_s, trials_s) <= 1.1 * first_s
        ratios.append(trials_s / other_s)
    assert paper.geometric_mean(ratios) <= 1.01


def test_the_papers_clusters_have_the_ranks_of_its_table() -> None:
    """Broken: the comparison would be of other clusters than AutoDist's."""
    ranks = {name: sum(host.slots for host in cluster.hosts) for name, (cluster, _) in paper.CLUSTERS.items()}
    assert ranks == {
        "A1": 16,
        "A2": 11,
        "B1": 8,
        "B2": 12,
        "B3": 16,
        "B4": 4,
        "B5": 8,
        "B6": 12,
        "B7": 16,
        "B8": 32,
        "B9": 5,
        "B10": 8,
        "B11": 16,
        "B12": 5,
    }


@pytest.mark.parametrize("model", ["NCF", "LM1B", "VGG16"])
def test_no_builder_beats_the_plan_on_a_cluster_of_the_paper(model: str) -> None:
    """Broken: the table of the paper's clusters would show losses."""
    cluster, peak = paper.CLUSTERS["B9"]
    found = considered(cluster, paper.profile(model, peak), 5)
    built = [plan for name, plan in found.built if name in BUILDERS and found.question.admits(plan)]
    assert found.best.predicted_step_s <= min(plan.predicted_step_s for plan in built) + 1e-6


def test_a_belief_of_other_clusters_carries_weights_alone() -> None:
    """Broken: links of one cluster would be taken for those of another."""
    found = sampled.samples(sampled.message_by_message, ["star", "slow host"])
    corrected = ranking.after(found[0], found)
    plain = ranking.predicted(found[0])
    assert corrected != plain
    assert (
        learned(found[0].question, ()).belief.links.keys()
        == learned(found[1].question, ()).belief.links.keys()
    )


def test_rows_are_listed_once() -> None:
    """Broken: a row could not be asked for by its name."""
    assert {
        "builders",
        "exhaustive",
        "ranking",
        "ranking-network",
        "search",
        "paper-clusters",
        "uneven-model",
    } <= set(ROWS)

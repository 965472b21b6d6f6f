"""Plans of drawn clusters, against a search that has nothing from the planner but the simulator: a small share of the benchmark."""

from __future__ import annotations

import pytest

from benches.drawn.clusters import case
from benches.drawn.rerouting import Rerouting
from benches.drawn.rows import WORST, found
from hocket.artefacts.plan_check import check

pytestmark = pytest.mark.tools

EVALUATIONS = 300
SEEDS = {
    3: "three racks whose trunks differ",
    5: "racks and a helper",
    11: "racks and two helpers",
    16: "cards and rates",
    57: "cards, trunks, and a rack whose hosts all own parts",
}


@pytest.mark.parametrize("seed", SEEDS, ids=list(SEEDS.values()))
def test_no_other_search_finds_a_much_faster_plan(seed: int) -> None:
    """Broken: on clusters that nobody showed the planner, jobs would train a third slower than they could, while the plan says that
    nothing can be gained."""
    both = found(case(seed), seed, EVALUATIONS)
    assert 100 * both.regret <= WORST
    # A bound is below whatever can be attained, and says at least what links must carry.
    assert (
        both.volume_s - 1e-9 <= both.bound_s <= min(both.planned_s, both.rerouted_s, both.predicted_s) + 1e-9
    )


def test_the_other_search_makes_plans_that_run() -> None:
    """Broken: the planner would be compared with plans that lose gradients."""
    on = case(5)
    plan, _ = Rerouting(on, lambda plan: float(len(plan.buckets)), seed=1).best(60, [])
    check(plan)
    names = {part.variable for bucket in plan.buckets for part in bucket.parts}
    assert names == {each.name for each in on.profile.gradients}
    assert sum(bucket.elements for bucket in plan.buckets) == sum(
        each.elements for each in on.profile.gradients
    )

"""The last few plans, compared message by message."""

from __future__ import annotations

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Plan
from hocket.planning import search
from hocket.tools.simulation import fidelity, shortlist
from tests.planning.planner_inputs import alternating, model

CLUSTER = Cluster(hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e9) for at in range(4)))


def considered(cluster: Cluster = CLUSTER) -> search.Considered:
    return search.considered(cluster, model(), 4)


def test_simulated_times_are_those_of_hocket_simulate() -> None:
    """Broken: the plan would be chosen by other times than `hocket simulate` prints for it."""
    even = search.neutral_profile()
    found = search.considered(CLUSTER, even, 4)
    plan = shortlist.chosen(found, CLUSTER, even)
    simulated = {each.label: each.simulated_step_s for each in plan.evidence.candidates}
    assert sum(each is not None for each in simulated.values()) > 1
    for each in found.fastest:
        if simulated.get(each.label) is not None:
            assert simulated[each.label] == fidelity.predict(each, CLUSTER, even).step_s


@pytest.mark.parametrize(
    ("simulated", "wanted"), [([1.0, 1.1, 0.9], 2), ([1.0, 1.1, 0.995], 0), ([1.0, 0.995, 1.1], 1)]
)
def test_a_plan_that_is_faster_message_by_message_is_chosen(
    monkeypatch: pytest.MonkeyPatch, simulated: list[float], wanted: int
) -> None:
    """Broken: what the closed form does not see would cost the user time, noise would change plans, or a plan would be slower than
    the simple one, which is the second."""
    rates = (1e8, 1e9, 1e9, 1e9)
    slow = Cluster(
        hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=rate) for at, rate in enumerate(rates))
    )
    found, seen = considered(slow), list[Plan]()

    def simulate(plans: list[Plan], *_: object) -> list[float]:
        seen.extend(plans[: len(simulated)])
        return simulated

    monkeypatch.setattr(shortlist, "_simulated", simulate)
    plan = shortlist.chosen(found, slow, model())
    assert seen[0] == found.best != seen[1]
    assert seen[1] in found.uniform
    assert plan.buckets == seen[wanted].buckets
    assert ("but simulated message by message" in plan.reason) == bool(wanted)


def test_too_many_messages_are_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: `hocket plan` would take minutes for large jobs."""
    monkeypatch.setattr(shortlist, "MESSAGES_MAX", 1)
    plan = shortlist.chosen(considered(), CLUSTER, model())
    assert plan.buckets == search.plan(CLUSTER, model(), 4).buckets
    assert all(each.simulated_step_s is None for each in plan.evidence.candidates)


def test_another_plan_is_named_where_rates_that_are_off_make_it_faster() -> None:
    """Broken: a plan that depends on a rate would look as safe as one that does not."""
    found = considered(alternating())
    slowest = max(found.uniform, key=lambda each: each.predicted_step_s)
    plan = shortlist.with_sensitivity(found.explained(slowest), found)
    assert all(each.best_step_s < each.step_s for each in plan.evidence.sensitivity)
    assert f"{plan.evidence.sensitivity[0].best} would take" in plan.reason
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan

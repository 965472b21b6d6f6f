"""What the rows `sixteen`, `fidelity` and `links` of `python -m benches delays` compare: models, schedules, orders of launches."""

from statistics import fmean

import msgspec
import pytest

from benches.delays import contenders, fidelity, links, sixteen, table_1
from hocket._native import schedule_faults
from hocket.artefacts.learning import learning_of
from hocket.artefacts.network import GOODPUT
from hocket.artefacts.promise import EXACT, Promise
from hocket.planning import delays, search
from hocket.planning.for_job import updates_per_step

pytestmark = pytest.mark.tools

PARAMETERS = {"ResNet-101": 44.5e6, "VGG-19": 143.7e6, "GPT-2": 124.4e6}


@pytest.mark.parametrize("model", table_1.TABLE)
def test_models_have_the_tables_totals(model):
    """The comparison would be of other models than the paper's."""
    profile, total = table_1.profile(model), table_1.TABLE[model]
    elements = sum(each.elements for each in profile.gradients)
    assert elements * table_1.SCALE == pytest.approx(PARAMETERS[model], rel=0.005)
    assert (profile.forward_s, profile.backward_s) == (total.forward_s, total.backward_s)
    assert profile.gradients[-1].ready_s < profile.gradients[0].ready_s == pytest.approx(profile.step_s)
    for gbit_per_s in (10, 40):
        (rate,) = {host.bandwidth_bit_per_s for host in table_1.cluster(model, gbit_per_s).hosts}
        ring_s = 8 * 4 * elements * 2 * 15 / 16 / rate
        assert ring_s == pytest.approx(total.communication_s * 40 / gbit_per_s)


def test_deft_is_ahead_of_ddp_where_the_paper_says_so():
    """A row would show the paper's order though the simulation has another."""
    of = sixteen.field("VGG-19", 40)
    ddp_s = contenders.simulated_s(contenders.ddp(of, sixteen.DDP_BYTES), of)
    deft_s, plan = sixteen.fastest(sixteen.deft(of), of)
    computed_s = of.profile.forward_s + of.profile.backward_s
    total_s = table_1.TABLE["VGG-19"].communication_s / GOODPUT
    assert deft_s == pytest.approx(computed_s, rel=0.02)
    assert ddp_s > total_s
    # As many updates as the links carry, less what stages lose.
    assert 0.85 * computed_s / total_s < fmean(updates_per_step(plan)) <= computed_s / total_s


def test_the_nine_schedules_are_sound_and_differ():
    """Two schedules would be measured twice, or one that no session runs."""
    made = [
        fidelity.scheduled(merge, late, 3, gates=overlap == "gates")
        for merge, late, overlap in fidelity.SCHEDULES
    ]
    assert len({repr(each) for each in made}) == 9
    for each in made:
        if each.turns:
            assert schedule_faults(each, 3) == []


def test_orders_of_launches_agree_up_to_the_shorter_one():
    """Another order would count as the same, or the flush at the end of training as another order."""
    simulated = [(1, 0), (0, 0), (1, 1), (0, 1)]
    assert fidelity.agree(simulated, simulated[:3])
    assert fidelity.agree(simulated, [*simulated, (1, 2)])
    assert not fidelity.agree(simulated, [(0, 0), (1, 0)])
    assert not fidelity.agree(simulated, [])


def test_the_papers_guard_fills_a_knapsack_for_each_card() -> None:
    """Broken: DeFT as published would be compared with the busiest card for all, and half of its links idle."""
    learning = learning_of("sgd,rate=0.001,momentum=0.5,loss=2.3,drift=1,noise=1")
    cluster, profile = links.hosts(), msgspec.structs.replace(links.model(), learning=learning)
    found = search.considered(cluster, profile, 4, promise=EXACT)
    plain, graph = found.explained(found.best), found.question.graph
    promise = Promise("uncorrected", merge=8, uncorrected=8)
    plan = delays.scheduled(plain, graph, profile, promise, guard="paper")
    assert {bucket.cards for bucket in plan.buckets} == {(0,), (1,)}
    assert "one for each card, no bucket is striped" in plan.reason
    # The paper's two links carry three of four updates at this coverage.
    assert fmean(updates_per_step(plan)) >= links.BOTH_MIN
    assert plan.predicted_step_s <= links.EQUAL_MAX * (profile.forward_s + profile.backward_s)

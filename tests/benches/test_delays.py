"""Contenders of `python -m benches delays` are plans of the whole model, tuned alike, and delays are used only where they gain."""

from itertools import pairwise

import pytest

from benches.delays import cases, contenders, parts, sweep_alone
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Schedule
from hocket.artefacts.plan_check import findings
from hocket.artefacts.promise import Promise
from hocket.planning.cost import predict

pytestmark = pytest.mark.tools


def small(layers=6):
    """Layers of 200,000 elements and a bias."""
    return cases.profile_of("small", [cases.Layer(share=1, shapes=((400, 500), (500,)))] * layers)


def field(coverage, profile=None):
    profile = profile or small()
    return contenders.field(cases.star(profile, coverage), profile, cases.WORLD)


@pytest.mark.parametrize("make", [contenders.byte_scheduler, contenders.us_byte, contenders.synchronous])
def test_plans_are_sound_and_of_the_whole_model(make):
    """A contender would win by sending less than the others."""
    of = field(1.4)
    model = [Gradient(each.name, each.shape, each.dtype) for each in of.profile.gradients]
    for plan in make(of):
        assert list(findings(plan, model)) == []


def test_coverage_is_what_links_take_over_what_layers_compute():
    """Results would stand at other coverage rates than those they are of."""
    of = field(2.0)
    ring = contenders.ddp(of, 1 << 30, f16=True)
    found = predict(ring, of.cluster, of.profile)
    busiest_s = found.loads[0].busy_s
    assert busiest_s == pytest.approx(2.0 * (cases.FORWARD_S + cases.BACKWARD_S), rel=0.07)


def test_the_searched_plan_is_no_weaker_than_uniform_parts():
    """A contender whose search is broken would be easy to beat."""
    of = field(1.4)
    uniform_s = min(contenders.predicted(plan, of).predicted_step_s for plan in contenders.byte_scheduler(of))
    unequal_s = min(contenders.predicted(plan, of).predicted_step_s for plan in contenders.us_byte(of))
    assert unequal_s <= uniform_s * 1.001
    barrier = contenders.synchronous(of)[0]
    assert barrier.schedule == Schedule()
    assert unequal_s < 0.95 * contenders.predicted(barrier, of).predicted_step_s


def test_delays_are_used_where_they_gain_and_nowhere_else():
    """Training would be changed for nothing, or a gain that was allowed would be left."""
    names = [each.name for each in contenders.contenders(field(0.05), contenders.PROMISES)]
    assert not any("late" in name or "merged" in name for name in names)
    tuned = contenders.contenders(field(2.0), contenders.PROMISES)
    late = next(each for each in tuned if each.name == "Hocket, merged 2, late by 1")
    best = next(each for each in tuned if each.name == "Hocket, synchronous")
    assert not late.synchronous
    step_s = late.variants[0].plan.predicted_step_s
    assert step_s < best.variants[0].plan.predicted_step_s / 1.5


def test_parts_are_cut_and_merged_without_loss():
    """A search over parts would lose gradients, or send some twice."""
    gradients = small(3).gradients
    groups = parts.uniform(gradients, 1 << 18)
    assert all(parts.bytes_of(group) <= 1 << 18 for group in groups)
    blocks = parts.Blocks(tuple(map(tuple, groups)), tuple(range(len(groups))))
    whole = sorted((each.name, each.elements) for each in gradients)
    for after in parts.changed(blocks):
        assert sorted(after.places) == list(range(len(after.groups)))
        sent: dict[str, list[tuple[int, int]]] = {}
        for gradient, start, stop in (each for group in after.groups for each in group):
            sent.setdefault(gradient.name, []).append((start, stop))
        for ranges in sent.values():
            ranges.sort()
            assert all(one[1] == other[0] for one, other in pairwise(ranges))
        assert sorted((name, ranges[-1][1]) for name, ranges in sent.items()) == whole
        assert all(ranges[0][0] == 0 for ranges in sent.values())


def test_profiles_are_of_models_as_they_are_named():
    """Rows would be of other models than they say."""
    elements = {
        made.model: [each.elements for each in made.gradients]
        for made in (cases.transformer(), cases.imbalanced())
    }
    assert sum(elements["transformer"]) == pytest.approx(3.3e6, rel=0.01)
    assert max(elements["vgg"]) >= 0.65 * sum(elements["vgg"])


def test_steps_alone_are_chosen_that_are_near_the_best_of_a_sweep():
    """The closed form would choose exchanges that take longer than it says, or more steps alone than any network needs."""
    (row,) = sweep_alone.rows((Promise("local", local=20, delay=4),))
    assert row.met, row
    assert "over the shortest of 19" in row.what

"""Schedules of plans: sound, within their promise, and as fast in the flow engine as predicted."""

import itertools

import msgspec
import pytest

from hocket import _native
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.plan_check import findings
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.links import link_graph
from hocket.planning.schedules import deft, front, papers, turns
from hocket.tools.simulation.fidelity import predict
from tests.planning.planner_inputs import alternating, model

LATE = Promise("uncorrected", merge=3, uncorrected=3)
EQUAL_HOSTS = [1.2e9, 5e8, 3.3e8]
"""Bit/s of hosts, at which coverage rates are 0.5, 1.3 and 1.9."""


def plan():
    return plan_of(
        buckets([[each] for each in model(8, 100_000).gradients], AllReduce(algorithm="ring"), range(4)),
        4,
        label="ring",
    )


def choices(bit_per_s, promise=LATE, gates=True):
    cluster = alternating(trunk_bit_per_s=1e11, host_bit_per_s=bit_per_s)
    made = plan()
    found = front(made, link_graph(cluster, 4), model(8, 100_000), promise, gates=gates, rate="linear")
    plans = [msgspec.structs.replace(made, schedule=each.schedule, promise="uncorrected") for each in found]
    return cluster, found, plans


@pytest.mark.parametrize("bit_per_s", EQUAL_HOSTS)
def test_schedules_are_sound_and_keep_the_promise(bit_per_s):
    """The planner would propose what the checker refuses, or what nobody was promised."""
    _, found, plans = choices(bit_per_s)
    # Where gates hide everything, delays gain nothing, and are not proposed.
    assert (len(found) == 1) == (bit_per_s > 1e9)
    for choice, made in zip(found, plans, strict=True):
        assert list(findings(made)) == []
        for each in choice.schedule.turns:
            assert all(turn.last - turn.first < 3 and turn.due.iteration - turn.last <= 3 for turn in each)
        assert turns(choice.schedule, 0).staleness <= 1
    assert [each.iteration_s for each in found] == sorted(each.iteration_s for each in found)
    synchronous = choices(bit_per_s, Promise("exact"))[1]
    assert all(turn.due.iteration == turn.last for each in synchronous for turn in each.schedule.turns[0])
    merged = choices(bit_per_s, Promise("merged", merge=2))[1]
    assert all(each.schedule.delay_max == 0 for each in merged)
    assert min(each.iteration_s for each in merged) >= found[0].iteration_s


@pytest.mark.parametrize("bit_per_s", EQUAL_HOSTS)
def test_schedules_take_as_long_in_the_flow_engine_as_predicted(bit_per_s):
    """A schedule would be chosen for a step that it does not keep (row R2 without real ranks)."""
    cluster, found, plans = choices(bit_per_s)
    errors = []
    for choice, made in itertools.islice(zip(found, plans, strict=True), 6):
        simulated_s = predict(made, cluster, model(8, 100_000)).step_s
        errors.append(abs(simulated_s / choice.iteration_s - 1))
    assert max(errors) < 0.15
    assert sorted(errors)[len(errors) // 2] < 0.06


def test_defts_schedule_of_a_plan():
    """The paper's scheduler could not be compared on the same plan; or starve a bucket without a word."""
    cluster = alternating(trunk_bit_per_s=1e11, host_bit_per_s=3.3e8)
    graph = link_graph(cluster, 4)
    schedule = deft(plan(), graph, model(8, 100_000), rate="linear")
    made = msgspec.structs.replace(plan(), schedule=schedule, promise="uncorrected")
    assert list(findings(made)) == []
    assert schedule.delay_max >= 1


def test_a_bucket_longer_than_every_gap_is_cut():
    """By DeFT's schedule of the buckets as they are there would be no update ever; nor would it be among the planner's."""
    slow = link_graph(alternating(1e11, 5e8), 4)
    sizes = [100_000] * 7 + [1_000_000]
    uneven = model(8, 100_000)
    gradients = [
        msgspec.structs.replace(each, shape=(size,))
        for each, size in zip(uneven.gradients, sizes, strict=True)
    ]
    uneven = msgspec.structs.replace(uneven, gradients=tuple(gradients))
    groups = [gradients[:1], gradients[1:4], gradients[4:6], gradients[6:]]
    made = plan_of(buckets(groups, AllReduce(algorithm="ring"), range(4)), 4, label="ring")
    with pytest.raises(UsageError, match=r"bucket 3 takes .* its gradients would never be applied"):
        deft(made, slow, uneven, rate="linear")
    by_rule = papers(made, slow, uneven, rate="linear", apart=False)
    assert len(by_rule.buckets) > 4
    promise = Promise("uncorrected", merge=8, uncorrected=8)
    found = front(made, slow, uneven, promise, gates=False, rate="linear")
    assert by_rule.buckets in [each.buckets for each in found]
    assert all(list(findings(with_schedule(made, each))) == [] for each in found)
    assert [each.iteration_s for each in found] == sorted(each.iteration_s for each in found)


def with_schedule(plan, choice):
    return msgspec.structs.replace(
        plan, buckets=choice.buckets, schedule=choice.schedule, promise="uncorrected"
    )


def test_knapsacks_reach_python():
    """Users of the binding would get other numbers than the crate's own tests show."""
    items = [(10, [95], 95), (40, [30], 30), (70, [30], 30)]
    assert _native.pack(items, [_native.STEP_TICKS]) == ([0, 0, 0], 155, 155)
    assert _native.pack(items, [100]) == ([None, 0, 0], 60, 60)
    with pytest.raises(UsageError, match="links"):
        _native.pack(items, [])

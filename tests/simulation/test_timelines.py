"""Schedules of merged and late gradients in the flow engine: what they gain, and that nothing changes where they are trivial."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket._native import schedule_faults
from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce, Begun, Due, Plan, Schedule, Turn
from hocket.artefacts.profile import Gradient, Profile
from hocket.errors import UsageError
from hocket.planning.buckets import buckets, plan_of
from hocket.tools.simulation import flow, record
from hocket.tools.simulation.conditions import Conditions, Costs
from hocket.tools.simulation.fidelity import predict
from hocket.tools.simulation.networks import from_cluster

LAYERS, WORLD = 8, 4
FORWARD_S, BACKWARD_S = 0.1, 0.2
FREE = Costs(
    send_s=0, receive_s=0, reduce_s_per_byte=0, cast_s_per_byte=0, copy_s_per_byte=0, socket_s_per_byte=0
)


def cluster(bit_per_s: float) -> Cluster:
    return Cluster(hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=bit_per_s) for at in range(WORLD)))


def profile() -> Profile:
    """The deepest layer is ready first, and forward needs it last."""
    gradients = tuple(
        Gradient(
            name=f"layer.{at}",
            shape=(250_000,),
            dtype="f32",
            ready_s=FORWARD_S + BACKWARD_S * (LAYERS - at) / LAYERS,
            needed_s=FORWARD_S * at / LAYERS,
        )
        for at in range(LAYERS)
    )
    return Profile(
        model="layers",
        world=WORLD,
        steps=10,
        forward_s=FORWARD_S,
        backward_s=BACKWARD_S,
        optimizer_s=0.0,
        step_s=FORWARD_S + BACKWARD_S,
        gradients=gradients,
    )


def plan() -> Plan:
    each = [[gradient] for gradient in profile().gradients]
    return plan_of(buckets(each, AllReduce(algorithm="ring"), range(WORLD)), WORLD, label="ring")


def scheduled(lengths, delay, gate=False, sent=None) -> Plan:
    """The same turns for all buckets: applied `delay` iterations late, but not after the next turn's last."""
    turns, first = [], 0
    for at, length in enumerate(lengths):
        last = first + length - 1
        due = min(last + delay, last + lengths[(at + 1) % len(lengths)])
        fields = {"sent": sent(last)} if sent else {}
        turns.append(
            Turn(first=first, last=last, due=Due(iteration=due, at="gate" if gate else "end"), **fields)
        )
        first = last + 1
    schedule = Schedule(
        period=first,
        overlap="gates" if gate else "barrier",
        turns=(tuple(turns),) * LAYERS,
        delay_max=min(max(delay, 1), first),
    )
    assert schedule_faults(schedule, LAYERS) == []
    return msgspec.structs.replace(plan(), schedule=schedule, promise="uncorrected")


def bit_per_s(coverage: float) -> float:
    """At which a ring of all buckets takes `coverage` of computation: 2 (n-1)/n of the bytes over each link."""
    size = LAYERS * 250_000 * 4
    return 8 * size * 2 * (WORLD - 1) / WORLD / (coverage * (FORWARD_S + BACKWARD_S))


def iteration_s(coverage: float, made: Plan) -> float:
    network = from_cluster(cluster(bit_per_s(coverage)), WORLD)
    return flow.predict(made, network, profile(), costs=FREE).outcome.step_s


def longest_synchronous_s(coverage: float) -> float:
    """Iterations differ a little from one another: messages that are ready at the same time leave in one order or another."""
    network = from_cluster(cluster(bit_per_s(coverage)), WORLD)
    run = flow.predict(scheduled([1], 0), network, profile(), costs=FREE, steps=12)
    ends_s = [0.0, *(max(ends) for ends in run.simulation.phase_ends_s)]
    return max(after - before for before, after in pairwise(ends_s))


def test_a_written_down_trivial_schedule_is_the_synchronous_one():
    """A plan's prediction would change when its schedule is spelt out."""
    trivial = scheduled([1], 0)
    for coverage in (0.3, 1.0, 2.0):
        # The first iteration alone finds all receives posted.
        assert iteration_s(coverage, trivial) == pytest.approx(iteration_s(coverage, plan()), rel=5e-3)


def test_gates_without_turns_are_gates():
    """A synchronous plan whose layers wait for their own buckets alone would be predicted as if all waited for all."""
    made = plan()
    gates = msgspec.structs.replace(made, schedule=Schedule(overlap="gates"))
    spelt_out_s = iteration_s(1.4, scheduled([1], 0, gate=True))
    assert iteration_s(1.4, gates) == pytest.approx(spelt_out_s, rel=1e-9)
    assert spelt_out_s < 0.95 * iteration_s(1.4, made)


@pytest.mark.parametrize("coverage", [0.3, 0.9, 1.4, 2.0])
def test_what_delays_and_merging_gain(coverage):
    """Predicted gains would not be those that links allow: computation, or what links carry of each update."""
    computed_s = FORWARD_S + BACKWARD_S
    synchronous = iteration_s(coverage, scheduled([1], 0))
    delayed = iteration_s(coverage, scheduled([1], 1))
    assert synchronous > 1.03 * delayed
    assert delayed == pytest.approx(max(1, coverage) * computed_s, rel=0.06)
    merged = iteration_s(coverage, scheduled([2], 2))
    assert merged == pytest.approx(max(1, coverage / 2) * computed_s, rel=0.06)
    # Merging alone hides nothing more of its one exchange: half of it per iteration.
    alone = iteration_s(coverage, scheduled([2], 0))
    assert alone == pytest.approx((computed_s + synchronous) / 2, rel=0.03)
    gates = iteration_s(coverage, scheduled([1], 0, gate=True))
    assert delayed <= gates * 1.001
    assert gates <= synchronous * 1.001


def test_turns_as_often_as_links_allow():
    """At a coverage of 1.3, five updates in seven iterations slow nothing down, and seven in seven do."""
    five_of_seven = scheduled([2, 1, 2, 1, 1], 2)
    assert iteration_s(1.3, five_of_seven) == pytest.approx(FORWARD_S + BACKWARD_S, rel=0.03)
    assert iteration_s(1.3, scheduled([1], 1)) > 1.25 * (FORWARD_S + BACKWARD_S)


@settings(max_examples=25)
@given(
    coverage=st.floats(0.2, 2.5),
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    delay=st.integers(0, 3),
    gate=st.booleans(),
)
def test_nothing_is_faster_than_computation_or_than_the_links(coverage, lengths, delay, gate):
    """A prediction would promise what no network can do."""
    computed_s = FORWARD_S + BACKWARD_S
    found = iteration_s(coverage, scheduled(lengths, delay, gate))
    assert found >= computed_s * (1 - 1e-9)
    assert found <= longest_synchronous_s(coverage) * 1.002


def test_launches_at_points_and_stragglers():
    """Turns launched where an iteration begins, and slow ranks, would be simulated as something else."""
    late = scheduled([1], 1, sent=lambda last: Begun(iteration=last + 1, point="begin"))
    assert iteration_s(0.5, late) == pytest.approx(FORWARD_S + BACKWARD_S, rel=0.03)
    network = from_cluster(cluster(bit_per_s(0.5)), WORLD)
    slow = flow.predict(late, network, profile(), costs=FREE, conditions=Conditions(slow=((2, 1.5),)))
    assert slow.outcome.step_s == pytest.approx(1.5 * (FORWARD_S + BACKWARD_S), rel=0.03)


@pytest.mark.parametrize(("lengths", "delay"), [([1], 1), ([2], 2), ([2, 1], 2)])
def test_links_carry_no_more_than_they_can(lengths, delay):
    """Launches that nobody waits for any more would make a link look busier than is possible."""
    network = from_cluster(cluster(bit_per_s(2.5)), WORLD)
    outcome = flow.predict(scheduled(lengths, delay), network, profile(), costs=FREE).outcome
    assert 0.9 < outcome.loads[0].busy <= 1.0


def test_a_simulated_trace_has_the_launches_of_the_schedule(tmp_path):
    """Reports and comparisons of launches would show those of another bucket, or in another order."""
    made = scheduled([2, 1], 1)
    # A bucket with turns of its own: it is launched once where others are twice.
    alone = (Turn(first=0, last=2, due=Due(iteration=3)),)
    turns = (alone, *made.schedule.turns[1:])
    made = msgspec.structs.replace(
        made, schedule=msgspec.structs.replace(made.schedule, turns=turns, together=False)
    )
    network = from_cluster(cluster(bit_per_s(0.9)), WORLD)
    run = flow.predict(made, network, profile(), recorded=True)
    record.write(
        tmp_path, plan=made, profile=profile(), network=network, simulation=run.simulation, parts=run.parts
    )
    records = trace.read(tmp_path).records(1)
    launched = records[records["kind"] == trace.Kind.INSTANCE]
    launched = launched[np.argsort(launched["ready_ns"])]
    periods = len(run.simulation.phase_ends_s) // 3
    # The deepest layer first; in the second iteration all but the bucket with its own turns, in the third all.
    once = [*range(LAYERS - 1, 0, -1), *range(LAYERS - 1, -1, -1)]
    assert launched["program"].tolist() == once * periods
    for bucket, count in [(0, periods), (1, 2 * periods)]:
        own = launched[launched["program"] == bucket]
        assert own["instance"].tolist() == list(range(count))


def test_one_iterations_models_refuse_turns():
    """The closed form of one iteration would predict a schedule of several."""
    with pytest.raises(UsageError, match="closed form is of one iteration"):
        predict(scheduled([1], 1), cluster(1e9), profile(), fidelity="closed-form")

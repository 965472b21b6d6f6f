"""Traces with another number of workers: against closed forms and simulations of plans, and what is refused."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.trace import RUN_FILE, read
from hocket.cli.main import hocket
from hocket.errors import ArtefactError, UsageError
from hocket.planning.rescaled import rescaled
from hocket.tools.replay import simulated, workers
from hocket.tools.replay.of_dlc import of_dlc_files
from hocket.tools.replay.predicted import predict, predicted
from hocket.tools.replay.schedule import schedule
from hocket.tools.replay.traffic import Message, Traffic
from hocket.tools.replay.workers import with_workers
from hocket.tools.simulation import flow
from hocket.tools.simulation.conditions import Conditions, Costs
from hocket.tools.simulation.networks import from_cluster, star
from tests.replay.replay_inputs import COMPUTE_US, ITERATIONS, SIZES, SMALL, STEPS, WORKERS

RATE_BIT_PER_S = 1e8
BOTH_WAYS = 2 * sum(SIZES)
"""Bytes of a worker that cross the server's link one after the other: requests of pulls queue behind the worker's pushes."""


def wide(count, bit_per_s=2e8, slots=1):
    return Cluster(
        hosts=tuple(Host(name=f"h{at}", slots=slots, bandwidth_bit_per_s=bit_per_s) for at in range(count))
    )


def mean(values):
    return sum(values) / len(values)


def asynchronous(gaps_s=(0.01, 0.03)):
    """Two workers, each of whom the server answers alone; three iterations."""
    messages = []
    for iteration in range(3):
        for worker, gap_s in enumerate(gaps_s):
            after = (len(messages) - 3,) if iteration else ()
            messages += [
                Message(worker, 2, 1000, after, gap_s, iteration),
                Message(2, worker, 1000, (len(messages),), 0.001 * (worker + 1), iteration),
            ]
    return Traffic(
        nodes=("worker 0", "worker 1", "server 0"),
        workers=2,
        messages=tuple(messages),
        recorded_s=(0.03, 0.03),
    )


def test_as_many_workers_as_recorded_change_nothing(nodes):
    """The number of workers would not be all that differs."""
    for traffic in (of_dlc_files(nodes), asynchronous()):
        assert with_workers(traffic, WORKERS) == traffic


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_servers_links_carry_what_all_workers_send(nodes, count):
    """Twice the workers at a server's link would not take twice as long, or wait for half of them only."""
    found = with_workers(of_dlc_files(nodes), count)
    assert found.nodes[-1] == "server 0"
    assert len(found.nodes) == count + 1
    network = star(count + 1, bit_per_s=RATE_BIT_PER_S, latency_s=0.0)
    communication_s = count * BOTH_WAYS * 8 / RATE_BIT_PER_S
    # What messages cost tells workers apart: then those that are first push while the others still pull.
    free = Costs(send_s=0.0, receive_s=0.0)
    for computation in (0.0, 1.0):
        steps_s = simulated.predict(found, network, costs=free, computation=computation)
        # The update of the first key passes while the second is pushed.
        assert steps_s == pytest.approx(
            [communication_s + computation * COMPUTE_US * 1e-6] * (ITERATIONS - 1), rel=0.002
        )


def test_synchronous_servers_wait_for_all_of_them(nodes):
    """Updates would be made without the gradients of some."""
    found = with_workers(of_dlc_files(nodes), 5)
    server = 5
    answers = [each for each in found.messages if each.source == server and each.bytes == SMALL]
    assert len(answers) == ITERATIONS * len(SIZES) * 5
    for answer in answers:
        (moment,) = answer.after
        pushes = [found.messages[at] for at in found.messages[moment].after]
        assert sorted(push.source for push in pushes) == list(range(5))
        assert {push.iteration for push in pushes} == {answer.iteration}


def test_each_worker_is_a_copy_of_a_recorded_one():
    """New workers would compute as nobody does, or be held up by others'."""
    recorded, found = asynchronous(), with_workers(asynchronous(), 5)
    for worker in range(5):
        own = [each for each in found.messages if worker in (each.source, each.destination)]
        like = [each for each in recorded.messages if worker % 2 in (each.source, each.destination)]
        assert [(each.gap_s, each.bytes, each.iteration) for each in own] == [
            (each.gap_s, each.bytes, each.iteration) for each in like
        ]
        for each in own:
            assert all(
                worker in (found.messages[at].source, found.messages[at].destination) for at in each.after
            )
    network = star(6, bit_per_s=1e10, latency_s=0.0)
    alone, slow = (
        simulated.predict(found, network, conditions=Conditions(slow=slow)) for slow in ((), ((4, 10.0),))
    )
    assert max(alone) == pytest.approx(0.032, rel=0.02)
    assert max(slow) == pytest.approx(0.101, rel=0.02)


def test_a_plan_s_trace_on_its_own_cluster_takes_what_it_took(trace):
    """A prediction elsewhere would not even hold where the trace was recorded."""
    cluster = files.read(trace.parent / "cluster.toml", Cluster)
    own = predicted([trace], cluster)
    assert own.replayed_s == pytest.approx(own.recorded_s, rel=1e-4)
    assert predicted([trace], cluster, workers=2) == own


@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_a_plan_s_trace_with_others_is_its_plan_for_so_many(trace, count):
    """A trace of few workers would say of many what no plan for so many does."""
    plan = files.read(trace.parent / "plan.json", Plan)
    profile = files.read(trace.parent / "profile.json", Profile)
    grown = rescaled(plan, count, wide(count), made_for=None, hosts=["a", "b"])
    network = from_cluster(wide(count), count)
    wanted = flow.predict(grown, network, profile, steps=STEPS).outcome
    found = predicted([trace], wide(count), workers=count)
    assert len(found.replayed_s) == STEPS
    assert mean(found.replayed_s) == pytest.approx(wanted.step_s, rel=1e-3)
    # A ring's bytes: 2 (n - 1) / n of two buckets of 1.2 MB over 200 Mbit/s.
    bytes_s = 2 * (count - 1) / count * 2.4e6 * 8 / 2e8
    assert min(found.replayed_s) > bytes_s


def test_what_recorded_ranks_compute_is_dealt_in_turn(trace):
    """A straggler in the record would be none, or all, of more workers."""
    recorded = schedule(read(trace))
    late = tuple(
        msgspec.structs.replace(
            step,
            tail_s=step.tail_s + 1.0,
            launches=tuple((at, after_s + 2.0) for at, after_s in step.launches),
        )
        for step in recorded.ranks[1]
    )
    recorded = msgspec.structs.replace(recorded, ranks=(recorded.ranks[0], late))
    plan = rescaled(recorded.plan, 3, wide(3), made_for=None, hosts=["a", "b"])
    network = from_cluster(wide(3), 3)
    base = predict(recorded, plan, network)
    assert all(3.0 < step_s < 3.5 for step_s in base)
    # Rank 2 is a copy of rank 0: three times as long, it is still not the last.
    assert predict(recorded, plan, network, conditions=Conditions(slow=((2, 3.0),)))[0] == pytest.approx(
        base[0], rel=0.01
    )
    assert predict(recorded, plan, network, computation=2.0)[0] > base[0] + 2.9


def test_the_verb_takes_a_number_of_workers(nodes, trace, tmp_path):
    """The number of workers would be left out of what the verb asks."""
    files.write(tmp_path / "wide.toml", wide(5, bit_per_s=1e8))
    for paths in (nodes, [trace]):
        argv = ["simulate", "trace", *map(str, paths), "--cluster", str(tmp_path / "wide.toml")]
        base, same, more = (
            json.loads(CliRunner().invoke(hocket, [*argv, "--json", *extra], catch_exceptions=False).stdout)
            for extra in ([], ["-n", "2"], ["-n", "4"])
        )
        assert base["replayed_s"] == same["replayed_s"]
        assert more["recorded_s"] == base["recorded_s"]
        assert more["replayed_median_s"] > 1.2 * base["replayed_median_s"]
    shown = CliRunner().invoke(hocket, [*argv, "-n", "4"], catch_exceptions=False)
    assert "simulated, workers: 4" in shown.stdout
    assert CliRunner().invoke(hocket, [*argv, "-n", "0"]).exit_code == 2
    few = CliRunner().invoke(hocket, [*argv, "-n", "6"])
    assert isinstance(few.exception, UsageError)
    assert "hosts have 5 slots" in str(few.exception)


def test_messages_whose_number_nobody_knows_are_refused(trace, tmp_path):
    """A guess would be shown as a prediction."""
    converted = ["trace", "convert", str(trace), str(tmp_path / "dlc"), "--format", "dlc"]
    assert CliRunner().invoke(hocket, converted, catch_exceptions=False).exit_code == 0
    with pytest.raises(UsageError, match="an all-reduce's messages depend on how many workers"):
        predicted(sorted((tmp_path / "dlc").iterdir()), wide(4), workers=4)
    run = json.loads((trace / RUN_FILE).read_text()) | {"plan": None}
    (trace / RUN_FILE).write_text(json.dumps(run))
    with pytest.raises(UsageError, match="is not of a plan: what others than its 2 workers"):
        predicted([trace], wide(4), workers=4)


def test_memory_that_ranks_shared_is_not_there_between_hosts(trace):
    """What ranks of one host do would be predicted of a network."""
    run = json.loads((trace / RUN_FILE).read_text())
    for bucket in run["plan"]["buckets"]:
        bucket["route"] = {"type": "all_reduce", "algorithm": "in_place"}
    (trace / RUN_FILE).write_text(json.dumps(run))
    assert predicted([trace], wide(1, slots=4), workers=4).ratio > 0
    with pytest.raises(UsageError, match="memory that all ranks share: 4 ranks are on 2 hosts"):
        predicted([trace], wide(2, slots=2), workers=4)


def test_servers_of_which_too_little_is_known_are_refused(monkeypatch):
    """Who waits for whom would be made up."""
    known = asynchronous()
    alone = msgspec.structs.replace(known, nodes=("worker 0", "server 0", "server 1"), workers=1)
    with pytest.raises(UsageError, match="does not say whether servers wait for all"):
        with_workers(alone, 4)
    between = (*known.messages, Message(0, 1, 8, (), 0.0, 0))
    with pytest.raises(UsageError, match="worker 0 sends to worker 1"):
        with_workers(msgspec.structs.replace(known, messages=between), 4)
    other = msgspec.structs.replace(known, messages=(*known.messages, Message(2, 1, 8, (0,), 0.0, 0)))
    assert len(with_workers(other, 1).messages) == len(known.messages) / 2
    with pytest.raises(UsageError, match="server 0 has worker 1 wait for others alone"):
        with_workers(other, 4)
    monkeypatch.setattr(workers, "MESSAGES_MAX", 20)
    with pytest.raises(ArtefactError, match="4 workers have 24 messages, a replay at most 20"):
        with_workers(known, 4)


def test_workers_that_are_left_out_are_waited_for_by_nobody():
    """A job of fewer workers would wait for ever, or not at all where it should."""
    known = asynchronous()
    nodes = ("worker 0", "worker 1", "worker 2", "server 0")
    pushes = [Message(worker, 3, 8, (), 0.0, 0) for worker in range(3)]
    some = Message(3, 3, 0, (1, 2), 0.0, -1)
    answers = [Message(3, worker, 8, (3,), 0.0, 0) for worker in range(3)]
    traffic = msgspec.structs.replace(known, nodes=nodes, workers=3, messages=(*pushes, some, *answers[1:]))
    assert len(with_workers(traffic, 1).messages) == 1
    found = with_workers(traffic, 2)
    assert found.messages[2].after == (1,)
    with pytest.raises(UsageError, match="server 0 has worker 0 wait for others alone"):
        with_workers(msgspec.structs.replace(traffic, messages=(*pushes, some, *answers)), 1)

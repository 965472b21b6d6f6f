"""Pushes of captured parameter servers, summed by switches on their way: what links carry, and how long it takes."""

import json
from collections import Counter

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.cli.main import hocket
from hocket.errors import UsageError
from hocket.tools.replay import aggregated as module
from hocket.tools.replay.aggregated import aggregated
from hocket.tools.replay.of_dlc import of_dlc_files
from hocket.tools.replay.simulated import predict
from hocket.tools.replay.traffic import Message, Traffic
from hocket.tools.replay.workers import with_workers
from hocket.tools.simulation.aggregation import Switch
from hocket.tools.simulation.conditions import Costs
from hocket.tools.simulation.networks import leaf_spine, star, torus
from tests.replay.replay_inputs import ITERATIONS, SIZES

FREE = Costs(send_s=0.0, receive_s=0.0, socket_s_per_byte=0.0, rendezvous=False)
RATE = 1e8
PUSHED = sum(SIZES)


def crossed(found):
    """Bytes over each link, by its name, of pieces and sums alone."""
    bytes_over = Counter()
    for each in found.traffic.messages:
        if each.is_moment or each.bytes == module.RELEASED_BYTES:
            continue
        if max(each.source, each.destination) >= min(found.switches):
            for link in found.network.path(each.source, each.destination)[0]:
                bytes_over[found.network.links[link].name] += each.bytes
    return bytes_over


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))
def test_each_link_carries_a_gradient_once(nodes, leaves, per_leaf, slots):
    """A trunk or the server's link would carry as many gradients as there are workers, or none."""
    workers = leaves * per_leaf
    if workers < 2:
        return
    traffic = with_workers(of_dlc_files(nodes), workers)
    network = leaf_spine(leaves + 1, per_leaf, bit_per_s=RATE)
    # The server is the first host of the last leaf; hosts behind it are left over.
    network = module.replace(network, hosts=network.hosts[: workers + 1])
    found = aggregated(traffic, network, Switch(slots=slots, slot_bytes=60_000), seed=1)
    assert len(found.switches) == leaves + 1
    own = crossed(found)
    whole = PUSHED * ITERATIONS
    assert {own[f"host {worker} out"] for worker in range(workers)} == {whole}
    assert {own[f"leaf {leaf} spine 0 out"] for leaf in range(leaves)} == {whole}
    assert own[f"host {workers} in"] == whole
    # The trunk to the server's leaf carries a sum of each other leaf.
    assert own[f"leaf {leaves} spine 0 in"] == whole * leaves
    assert len(predict(found.traffic, found.network, switches=found.switches)) == ITERATIONS - 1


def one_push(workers, size):
    """Two iterations of one key: all push at once, the server answers each with a short message when it has all of them."""
    server = workers
    messages = []
    for iteration in range(2):
        pushes = range(len(messages), len(messages) + workers)
        for worker in range(workers):
            after = (len(messages) - workers,) if iteration else ()
            messages.append(Message(worker, server, size, after, 0.0, iteration, (0, 7, worker)))
        messages += [
            Message(server, worker, 1, tuple(pushes), 0.0, iteration, (1, 7, server))
            for worker in range(workers)
        ]
    return Traffic(
        nodes=(*map(str, range(workers)), "s"), workers=workers, messages=tuple(messages), recorded_s=(1.0,)
    )


@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("slots", [1, 3, 40])
def test_a_pool_of_slots_takes_what_its_pipeline_does(workers, slots):
    """A switch with too few slots would look as fast as one with enough."""
    pieces, slot_bytes, latency_s = 30, 1000, 50e-6
    slot_s = slot_bytes * 8 / RATE
    network = star(workers + 1, bit_per_s=RATE, latency_s=2 * latency_s)
    found = aggregated(
        one_push(workers, pieces * slot_bytes), network, Switch(slots=slots, slot_bytes=slot_bytes), seed=0
    )
    (step_s,) = predict(found.traffic, found.network, costs=FREE, switches=found.switches)
    # A slot is used again when its piece has come, and the news of that to the worker.
    news_s = module.RELEASED_BYTES * 8 / RATE
    cycle_s = slot_s + 2 * latency_s + news_s
    rounds = -(-pieces // slots) - 1
    up_s = (
        pieces * slot_s
        if slots * slot_s >= cycle_s
        else rounds * cycle_s + (pieces - rounds * slots) * slot_s
    )
    answer_s = workers * 8 / RATE + 2 * latency_s
    assert step_s == pytest.approx(up_s + latency_s + slot_s + latency_s + answer_s, rel=0.01)


def test_lost_pieces_are_sent_again_after_the_timeout():
    """Loss would cost nothing, or other pieces be lost at each call."""
    traffic, network = one_push(3, 2_000_000), star(4, bit_per_s=RATE)

    def sent(loss, seed):
        found = aggregated(traffic, network, Switch(slots=64, slot_bytes=1000, loss=loss), seed=seed)
        ups = [
            each for each in found.traffic.messages if each.source < 3 and each.destination in found.switches
        ]
        return found, ups

    _, without = sent(0.0, 1)
    found, ups = sent(0.2, 1)
    again = [each for each in ups if each.gap_s]
    assert len(ups) - len(without) == len(again)
    # Of n pieces, n p / (1 - p) are sent again, with a deviation of sqrt(n p) / (1 - p).
    count = len(without)
    assert count == 2 * 3 * 2000
    assert abs(len(again) - count * 0.25) < 5 * (count * 0.2) ** 0.5 / 0.8
    assert {each.gap_s for each in again} == {1e-3}
    assert found.traffic == sent(0.2, 1)[0].traffic != sent(0.2, 2)[0].traffic
    slow, fast = (
        predict(each.traffic, each.network, switches=each.switches)[0] for each in (found, sent(0.0, 1)[0])
    )
    assert slow > fast * 1.2


def test_what_cannot_be_summed_is_refused(nodes, monkeypatch):
    """A number would be given for a network without a switch, or for pushes of one worker alone."""
    traffic, switch = of_dlc_files(nodes), Switch(slots=4, slot_bytes=1024)
    with pytest.raises(UsageError, match="one rank each"):
        aggregated(traffic, star(2, bit_per_s=1e9, ranks_per_host=2), switch, 0)
    with pytest.raises(UsageError, match="wired to one another"):
        aggregated(traffic, torus([3], bit_per_s=1e9), switch, 0)
    with pytest.raises(UsageError, match="0 slots"):
        aggregated(traffic, star(3, bit_per_s=1e9), Switch(slots=0, slot_bytes=1), 0)
    with pytest.raises(UsageError, match=r"loses 1\.0 of its pieces"):
        aggregated(traffic, star(3, bit_per_s=1e9), Switch(slots=1, slot_bytes=1, loss=1.0), 0)
    alone = Traffic(nodes=("a", "s"), workers=1, messages=one_push(1, 10).messages, recorded_s=(1.0,))
    with pytest.raises(UsageError, match="no key is pushed by all workers"):
        aggregated(alone, star(2, bit_per_s=1e9), switch, 0)
    monkeypatch.setattr(module, "MESSAGES_MAX", 100)
    with pytest.raises(UsageError, match="simulate larger slots"):
        aggregated(traffic, star(3, bit_per_s=1e9), switch, 0)


def test_the_verb_sums(nodes, trace):
    """`--aggregate` would be ignored, or refuse a trace that it is for."""
    argv = ["simulate", "trace", *map(str, nodes), "--network", "star:3,100Mbit", "--json"]

    def median_s(*more):
        done = CliRunner().invoke(hocket, [*argv, *more], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["replayed_median_s"]

    plain, summed, lost = (
        median_s(*more) for more in ((), ("--aggregate", "64:2000"), ("--aggregate", "64:2000:0.3"))
    )
    # The server's link carries one push of a key instead of two, and its first answer leaves sooner.
    assert plain - summed == pytest.approx(PUSHED * 8 / RATE, rel=0.15)
    assert summed < lost
    done = CliRunner().invoke(
        hocket, ["simulate", "trace", str(trace), "--network", "star:2,1Gbit", "--aggregate", "4:4"]
    )
    assert isinstance(done.exception, UsageError)
    assert "sums a plan's buckets" in str(done.exception)

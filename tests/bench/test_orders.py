"""Costs of orders against independent definitions, and the ranks that measure them, for real but briefly."""

import itertools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket._native import Program
from hocket.artefacts.cluster import Cluster, Host
from hocket.bench.orders import beds, cost, program_cost, rows
from hocket.bench.spearman import spearman
from hocket.errors import ProgramError, TestbedError, UsageError
from hocket.launch.testbed import Testbed

matrices = st.lists(st.lists(st.floats(1e-5, 1e-2), min_size=4, max_size=4), min_size=4, max_size=4)


def clustered(matrix):
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e12) for at in range(len(matrix)))
    latency = tuple(
        tuple(0.0 if a == b else each for b, each in enumerate(row)) for a, row in enumerate(matrix)
    )
    return Cluster(hosts=hosts, latency_s=latency)


@settings(max_examples=30)
@given(matrices)
def test_a_ring_costs_its_way_around(matrix):
    """Rings would be chosen by a number that is not their time: calls in a row take 2(n-1)/n rounds of the ring each."""
    cluster = clustered(matrix)
    orders = cost.all_orders(4)
    found = cost.costs_s("ring", cluster, orders, 4)
    for order, seconds in zip(orders, found, strict=True):
        around = sum(cluster.latency_s[a][b] for a, b in pairwise([*order, order[0]]))
        assert seconds <= 6 / 4 * around * 1.35 + 1e-9
        assert seconds >= 6 / 4 * around * 0.74


@settings(max_examples=30)
@given(matrices)
def test_an_announced_ring_costs_its_slowest_pair(matrix):
    """Orders for Gloo would be chosen by the length of the ring, which is not what it takes."""
    cluster = clustered(matrix)
    orders = cost.all_orders(4)
    found = cost.costs_s("gloo_ring", cluster, orders, 4)
    for order, seconds in zip(orders, found, strict=True):
        pairs = [cluster.latency_s[a][b] + cluster.latency_s[b][a] for a, b in pairwise([*order, order[0]])]
        assert seconds == pytest.approx(6 * max(pairs), rel=0.05)


@settings(max_examples=30)
@given(matrices)
def test_doubling_costs_its_slowest_chain(matrix):
    """Orders of recursive doubling would be chosen by a number that is not their time: two exchanges, each as slow as its way."""
    cluster = clustered(matrix)
    order = np.array([[2, 0, 3, 1]])
    found = float(cost.costs_s("recursive_doubling", cluster, order, 4)[0])
    chains = [
        cluster.latency_s[order[0][rank ^ 3]][order[0][rank ^ other]]
        + cluster.latency_s[order[0][rank ^ other]][order[0][rank]]
        for rank in range(4)
        for other in (1, 2)
    ]
    assert found <= max(chains) + 1e-9
    assert found >= min(chains)


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "halving_doubling"])
def test_rounds_bring_everything_to_everyone(algorithm):
    """The cost would be of messages that are no all-reduce: somebody's values would not have reached somebody."""
    for world in (2, 4, 8):
        known = [{rank} for rank in range(world)]
        for messages in cost.rounds(algorithm, world):
            before = [set(each) for each in known]
            for source, target, _ in messages:
                known[target] |= before[source]
        assert all(len(each) == world for each in known)


def test_a_program_waits_for_what_its_receives_wait_for():
    """Chains of a program would be priced as if its messages needed no announcement."""
    cluster = clustered([[0, 1e-3], [5e-3, 0]])
    text = (
        'program "two" world 2\n'
        'rank 0 {\n  %0 = bound f32 4 "bucket"\n  0: send %0[0:4] as f32 to 1 tag 0\n'
        "  1: recv %0[0:4] as f32 store from 1 tag 0 after 0\n}\n"
        'rank 1 {\n  %0 = bound f32 4 "bucket"\n  0: recv %0[0:4] as f32 reduce sum from 0 tag 0\n'
        "  1: send %0[0:4] as f32 to 0 tag 0 after 0\n}\n"
    )
    program = Program.parse(text)
    # There: announced (5 ms), sent (1 ms). The way back (5 ms) is also that of the next launch's announcement.
    (found,) = program_cost.costs_s(program, cluster, np.array([[0, 1]]), 4)
    assert found == pytest.approx(6e-3, rel=1e-3)
    both_receive = text.replace("1: send %0[0:4] as f32 to 0", "1: recv %0[0:4] as f32 store from 0")
    with pytest.raises(ProgramError, match="circle"):
        program_cost.costs_s(Program.parse(both_receive), cluster, np.array([[0, 1]]), 4)


@pytest.mark.parametrize("algorithm", program_cost.NATIVE)
def test_every_message_of_a_program_is_priced(algorithm):
    """An op that the text writes in another way would cost nothing."""
    program = program_cost.native_program(algorithm, 8, 4096)
    text, ranks = str(program), program_cost.ops_of(program)
    assert len(ranks) == 8
    assert sum(op.sends is not None for ops in ranks for op in ops) == text.count(": send ")
    assert sum(op.receives is not None for ops in ranks for op in ops) == text.count(": recv ")


def test_extremes_are_the_best_and_the_worst():
    """The chosen order would not be the best one."""
    cluster = clustered(np.random.default_rng(3).uniform(1e-4, 5e-3, (4, 4)))
    best, worst = cost.extremes("ring", cluster, 1024)
    every = [
        float(cost.costs_s("ring", cluster, np.array([order]), 1024)[0])
        for order in itertools.permutations(range(4))
    ]
    asked = cost.costs_s("ring", cluster, np.array([best, worst]), 1024)
    assert asked[0] == pytest.approx(min(every))
    assert asked[1] == pytest.approx(max(every))
    with pytest.raises(UsageError, match="at most 8"):
        cost.all_orders(9)
    with pytest.raises(UsageError, match="power of two"):
        cost.rounds("halving_doubling", 6)


def test_spearman_is_of_ranks():
    """A correlation of 0.9 would be another number; ties would depend on the order of the list."""
    assert spearman([1, 2, 3, 4], [10, 100, 1000, 10_000]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2, 3], [5, 5, 7, 6]) == pytest.approx(7 / 9)


@pytest.mark.parametrize("program", ["gloo", "ring"])
def test_ranks_take_their_places(program):
    """A benchmark of orders would fail after minutes, or measure the same order again and again."""
    try:
        with Testbed(beds.cluster(2)):
            pass
    except TestbedError as error:
        pytest.skip(f"no namespaces or TAP devices here: {error}")
    asked = rows.Run(program=program, algorithm="ring", size_bytes=65_536, calls=2, turns=1)
    cluster = beds.cluster(2)
    chosen, worst = cost.extremes("ring", cluster, 64)
    latency = [
        sum(cluster.latency_s[a][b] for a, b in pairwise([*order, order[0]])) for order in (chosen, worst)
    ]
    assert latency[0] * 5 < latency[1]
    times_s = rows.by_ranks(cluster, asked, [chosen, worst])
    # No packet is faster than its latency: the worst order is slow on any machine, the chosen one on a loaded one.
    assert times_s[1][0] > latency[1]
    assert len(times_s) == 2

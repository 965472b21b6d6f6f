"""Costs of orders against independent definitions, and the ranks that measure them, for real but briefly."""

import itertools
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benches.orders import clusters, cost, rows, scored
from benches.orders.native import NATIVE, native_program, pieces_of, sizes_of
from benches.spearman import spearman
from hocket._native import SimulatedJob, SimulatedProgram
from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import TestbedError, UsageError
from hocket.tools.simulation import flow
from hocket.tools.simulation.conditions import Conditions, Costs
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.testbed import Testbed
from tests.support import warm

pytestmark = pytest.mark.tools

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


@pytest.mark.parametrize("emulation", [emulation for emulation in clusters.BY_RATES if emulation != "cards"])
@pytest.mark.parametrize("algorithm", NATIVE)
def test_the_shipped_cost_ranks_orders_as_the_simulator_does(algorithm, emulation):
    """Orders would be chosen by what they do not cost: trunks that pairs share would count for one pair.

    The simulator shares links between flows at every moment and knows nothing of closed forms. It sends everything over one card.
    """
    cluster = clusters.BY_RATES[emulation]()
    sizes = sizes_of(algorithm, cluster)

    def simulated_s(orders, _turns):
        network, costs = from_cluster(cluster, len(cluster.hosts)), Costs()
        times_s = []
        for order in orders:
            program = native_program(algorithm, sizes, order, 4_000_000, pieces_of(cluster))
            native = network.native_for(program.pairs())
            compiled = SimulatedProgram.compile(program, native, costs.native())
            run = flow.run(
                native,
                [compiled],
                SimulatedJob.phases(network.world, [([(0, 0, [0.0])], [0.0], [0.0])]),
                network,
                rendezvous=costs.rendezvous,
                conditions=Conditions(),
                recorded=False,
            )
            times_s.append(run.end_s)
        return times_s

    found = scored.score("", cluster, algorithm, 4_000_000, simulated_s)
    assert found.value >= 0.9
    assert found.chosen_to_best <= 1.1
    assert found.chosen_s <= found.given_s * 1.001
    assert len(set(found.orders)) == scored.DRAWN


def test_draws_reach_from_the_best_to_the_worst():
    """Nearly all random orders cost about the same: a correlation over them would be one of noise."""
    priced = [(1.0 if at else 0.5, (at,)) for at in range(98)] + [(2.0, (98,)), (3.0, (99,))]
    assert [cost for cost, _ in scored.spread(priced, 5)] == [0.5, 1.0, 2.0, 3.0, 1.0]


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
def test_ranks_take_their_places(program, monkeypatch):
    """A benchmark of orders would fail after minutes, or measure the same order again and again."""
    # The ranks' Python alone: the testbed's own processes read their input.
    monkeypatch.setattr(rows, "sys", SimpleNamespace(executable=warm.interpreter()))
    try:
        with Testbed(clusters.latency(2)):
            pass
    except TestbedError as error:
        if error.lacks is None:
            raise
        pytest.skip(f"no namespaces or TAP devices here: {error}")
    cluster = clusters.latency(2)
    asked = rows.Run(
        program=program,
        algorithm="ring",
        size_bytes=65_536,
        calls=2,
        turns=1,
        piece_bytes=pieces_of(cluster),
    )
    chosen, worst = cost.extremes("ring", cluster, 64)
    latency = [
        sum(cluster.latency_s[a][b] for a, b in pairwise([*order, order[0]])) for order in (chosen, worst)
    ]
    assert latency[0] * 5 < latency[1]
    times_s = rows.by_ranks(cluster, asked, [chosen, worst])
    # No packet is faster than its latency: the worst order is slow on any machine, the chosen one on a loaded one.
    assert times_s[1][0] > latency[1]
    assert len(times_s) == 2

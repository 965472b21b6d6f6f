"""Orders that are kept fit during training: what counts as a change, and that nothing swings to and fro."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Owned, Owner, Plan
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.ordering.classes import reordered
from hocket.planning.ordering.current import WINDOW, Current, Sample, uniform
from hocket.planning.ordering.hysteresis import Caution, Hysteresis
from hocket.planning.ordering.matrix import Matrix
from hocket.planning.ordering.monitor import Monitor
from hocket.planning.ordering.solve import Request, cost_s, solve

RANKS = 6
MEGABYTE = 1 << 20


def plan(order: tuple[int, ...], algorithm: str = "ring") -> Plan:
    made = buckets([[Gradient("w", (MEGABYTE,), "f32")]], AllReduce(algorithm=algorithm), order)
    return plan_of(made, len(order), label="")


class World:
    """Ranks that train in a ring over links of some rates, as the kernel would tell of it, with noise of some per cent."""

    def __init__(self, ranks: int, noise: float, seed: int) -> None:
        self.ranks = ranks
        self.byte_per_s = np.full((ranks, ranks), 1e8)
        self.round_trip_s = np.full((ranks, ranks), 2e-4)
        self._noise, self._draws = noise, random.Random(seed)  # noqa: S311  # no secret

    def samples(self, order: tuple[int, ...]) -> list[list[Sample | None]]:
        next_of = {rank: order[(at + 1) % self.ranks] for at, rank in enumerate(order)}
        return [
            [None if a == b else self._sample(a, b, used=next_of[a] == b) for b in range(self.ranks)]
            for a in range(self.ranks)
        ]

    def _sample(self, a: int, b: int, *, used: bool) -> Sample:
        sent = 4.0 * MEGABYTE if used else 30.0
        # A used link's queue is part of its round trip: what a change moves from one pair to another.
        queue_s = 0.005 if used else 0.0
        trip_s = (self.round_trip_s[a, b] + queue_s) * self._some()
        return Sample(trip_s, sent, sent / self.byte_per_s[a, b] * self._some())

    def _some(self) -> float:
        return 1 + self._noise * self._draws.uniform(-1, 1)


def train(monitor: Monitor, world: World, samples: int) -> list[tuple[int, ...]]:
    """The orders that are begun."""
    begun = []
    for _ in range(samples):
        orders = monitor.observe(world.samples(monitor.orders[0]))
        if orders is not None:
            monitor.begin(orders)
            begun.append(orders[0])
    return begun


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_noise_changes_nothing(noise: float, seed: int) -> None:
    """Broken: a job would change its order again and again for nothing."""
    monitor = Monitor(plan(tuple(range(RANKS))), *uniform(RANKS))
    assert train(monitor, World(RANKS, noise, seed), 300) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("what", ["rate", "latency"])
def test_a_link_that_becomes_slow_is_left_once(what: str, seed: int) -> None:
    """Broken: a job would stay on a slow link, or leave it and come back."""
    monitor = Monitor(plan(tuple(range(RANKS))), *uniform(RANKS))
    world = World(RANKS, 0.2, seed)
    assert train(monitor, world, 40) == []
    for pair in ((2, 3), (3, 2)):
        if what == "rate":
            world.byte_per_s[pair] /= 20
        else:
            world.round_trip_s[pair] = 0.2
    begun = train(monitor, world, 300)
    assert len(begun) == 1
    assert abs(begun[0].index(2) - begun[0].index(3)) not in (1, RANKS - 1)


def test_an_idle_link_that_recovers_is_used_again_and_links_that_flap_are_left_alone() -> None:
    """Broken: an order would follow a flapping link for ever."""
    monitor = Monitor(plan(tuple(range(RANKS))), *uniform(RANKS))
    world = World(RANKS, 0.1, 1)
    changes = 0
    samples = 600
    for turn in range(samples // 30):
        for pair in ((2, 3), (3, 2)):
            world.round_trip_s[pair] = 0.3 if turn % 2 else 2e-4
        changes += len(train(monitor, world, 30))
    assert 1 <= changes <= math.log2(samples / Caution().rest) + 1


def test_orders_that_do_not_matter_are_not_sought() -> None:
    """Broken: a plan that sends to everybody at once would be reordered without gain."""
    assert not Monitor(plan((0, 1, 2, 3), "direct"), *uniform(4)).matters
    assert not Monitor(plan((0, 1)), *uniform(2)).matters
    assert Monitor(plan((0, 1, 2)), *uniform(3)).matters


def two_rooms(ranks: int) -> tuple[World, np.ndarray]:
    """Even and odd ranks are in two rooms, with a tenth of the rate between them, as the matrix knows it."""
    world = World(ranks, 0.2, 7)
    for a in range(ranks):
        for b in range(ranks):
            if a % 2 != b % 2:
                world.byte_per_s[a, b] /= 10
    known = np.where(np.eye(ranks, dtype=bool), 0.0, 1 / world.byte_per_s)
    return world, known


def crossings(order: tuple[int, ...]) -> int:
    return sum(a % 2 != order[(at + 1) % len(order)] % 2 for at, a in enumerate(order))


def test_a_bad_start_is_repaired_by_what_was_measured() -> None:
    """Broken: a job that was started in an order several times dearer than the best that is known would keep it for days."""
    latency_s, _ = uniform(8)
    world = World(8, 0.2, 7)
    # Slow pairs that a ring can do without: every neighbour of the given order.
    for a in range(8):
        for b in ((a + 1) % 8, (a - 1) % 8):
            world.byte_per_s[a, b] /= 4
    known = np.where(np.eye(8, dtype=bool), 0.0, 1 / world.byte_per_s)
    given = tuple(range(8))
    matrix = Matrix(hosts=tuple("abcdefgh"), latency_s=latency_s, s_per_byte=known)
    request = Request(algorithm="ring", size_bytes=4.0 * MEGABYTE)
    best_s = solve(matrix, request).cost_s
    assert cost_s(matrix, request, given) > 3.5 * best_s, "the test needs a bad start"
    begun = train(Monitor(plan(given), latency_s, known), world, 200)
    assert len(begun) == 1
    assert cost_s(matrix, request, begun[0]) <= 1.05 * best_s


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_start_that_nobody_measured_is_repaired_by_what_connections_tell(seed: int) -> None:
    """Broken: a link that was slow from the first step on would be slow for ever, since it never changes."""
    monitor = Monitor(plan(tuple(range(RANKS))), *uniform(RANKS))
    world = World(RANKS, 0.2, seed)
    for pair in ((2, 3), (3, 2)):
        world.byte_per_s[pair] /= 20
    begun = train(monitor, world, 300)
    assert len(begun) == 1
    assert abs(begun[0].index(2) - begun[0].index(3)) not in (1, RANKS - 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_host_that_is_slow_wherever_it_stands_is_not_chased(seed: int) -> None:
    """Broken: orders would be tried for ever for a host whose own link is slow."""
    monitor = Monitor(plan(tuple(range(RANKS))), *uniform(RANKS))
    world = World(RANKS, 0.2, seed)
    world.byte_per_s[2, :] /= 20
    world.byte_per_s[:, 2] /= 20
    begun = train(monitor, world, 1000)
    assert len(begun) <= 3, "its neighbours are tried once each, and all are slow"


def test_a_good_start_is_kept() -> None:
    """Broken: the best order that there is would be changed because one of its links is slower than others."""
    latency_s, _ = uniform(8)
    world, known = two_rooms(8)
    given = (0, 2, 4, 6, 1, 3, 5, 7)
    assert crossings(given) == 2
    assert train(Monitor(plan(given), latency_s, known), world, 200) == []


@given(
    st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), max_size=400),
    st.floats(0.01, 0.9),
    st.integers(1, 6),
    st.integers(1, 20),
)
@settings(max_examples=200)
def test_changes_are_few_whatever_the_costs_are(
    costs: list[tuple[float, float]], gain: float, samples: int, rest: int
) -> None:
    """Broken: costs that swing would swing the order."""
    watch = Hysteresis(Caution(gain=gain, samples=samples, rest=rest))
    proposed = [watch.propose(current, best) for current, best in costs]
    assert sum(proposed) == watch.changes
    assert watch.changes <= math.log2(len(costs) / rest + 1) + 1
    for at in (at for at, yes in enumerate(proposed) if yes):
        assert at + 1 >= samples
        assert all(best < current * (1 - gain) for current, best in costs[at + 1 - samples : at + 1])


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=200), st.floats(0.0, 0.09))
def test_costs_within_the_gain_never_change_anything(noise: list[float], size: float) -> None:
    """Broken: an order as good as the current one would replace it."""
    watch = Hysteresis()
    assert not any(watch.propose(1 + size * each, 1 - size * each) for each in noise)


def test_what_has_not_changed_leaves_the_matrices_as_they_are() -> None:
    """Broken: measured numbers would drift with what load makes of them."""
    latency_s, s_per_byte = uniform(3)
    current = Current(latency_s, s_per_byte)
    for turn in range(30):
        current.learn(0, [None, Sample(0.01 * (1 + turn % 3 / 10), 1e6, 0.1 * (1 + turn % 2 / 5)), None])
    now_latency_s, now_s_per_byte = current.matrices()
    assert np.array_equal(now_latency_s, latency_s)
    assert np.array_equal(now_s_per_byte, s_per_byte)


def test_changes_move_the_matrices_by_as_much_and_stay_when_an_order_begins() -> None:
    """Broken: a link that became slow would be judged by its old speed, or forgotten as soon as it is left."""
    latency_s, s_per_byte = uniform(3)
    current = Current(latency_s, s_per_byte)
    for _ in range(WINDOW):
        current.learn(0, [None, Sample(2e-4, 1e6, 0.01), Sample(2e-4, 10.0, 0.01)])
    for _ in range(WINDOW):
        current.learn(0, [None, Sample(10.2e-3, 1e6, 0.1), Sample(2e-4, 10.0, 5.0)])
    for _ in range(2):
        now_latency_s, now_s_per_byte = current.matrices()
        assert now_s_per_byte[0, 1] == pytest.approx(10 * s_per_byte[0, 1])
        assert now_latency_s[0, 1] == pytest.approx(latency_s[0, 1] + 5e-3)
        assert now_s_per_byte[0, 2] == s_per_byte[0, 2]
        assert now_latency_s[1, 0] == latency_s[1, 0]
        current.begin_again()


def test_each_class_of_buckets_keeps_an_order_of_its_own() -> None:
    """Broken: buckets that go another way would all be given one order, or a plan's owners would move with it."""
    ring, owned = AllReduce(algorithm="ring"), Owned(owners=(Owner(rank=0),))
    gradients = [[Gradient(name, (MEGABYTE,), "f32")] for name in ("a", "b", "c")]
    ways = [(ring, (0, 1, 2, 3)), (ring, (3, 2, 1, 0)), (owned, (0, 1, 2, 3))]
    made = [buckets([own], *way)[0] for own, way in zip(gradients, ways, strict=True)]
    mixed = plan_of(made, 4, label="")
    assert Monitor(mixed, *uniform(4)).orders == ((0, 1, 2, 3), (3, 2, 1, 0))
    moved = reordered(mixed, [(0, 2, 1, 3), (3, 1, 2, 0)])
    assert [bucket.order for bucket in moved.buckets] == [(0, 2, 1, 3), (3, 1, 2, 0), (0, 1, 2, 3)]

"""Plans that go by measured all-reduces."""

from __future__ import annotations

import math

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.network import GOODPUT, LATENCY_S
from hocket.artefacts.plan import AllReduce, Bucket
from hocket.artefacts.tuning import Ladder, NetworkShape, Point, Timing, Tuning
from hocket.planning import search
from hocket.planning.compile import programs
from hocket.planning.cost import alone_s
from hocket.planning.links import link_graph
from hocket.planning.measured import correction_of
from hocket.planning.routes import name
from hocket.policy.selection import network_shape
from hocket.policy.topology import Topology
from tests.planning.planner_inputs import alternating, model

SHAPE = NetworkShape(
    ranks=4, hosts=4, racks=2, bit_per_s=1e8 * GOODPUT, latency_s=LATENCY_S, rack_slowdown=10.0
)
SIZES = (100_000, 10_000_000)


def tuning(shape: NetworkShape = SHAPE, **slower: float) -> Tuning:
    """Measured as the model says for the contiguous order, but for those that were so many times as slow."""
    graph = link_graph(alternating(), 4)
    plans = search.candidates(alternating(), model(elements=1_000_000), 4)
    shapes = {
        "two_level.rack" if plan.buckets[0].route.algorithm == "two_level" else "ring": plan.buckets[0]
        for plan in plans
    }
    points = []
    for size in SIZES:
        timings = []
        for algorithm, bucket in shapes.items():
            sized = msgspec.structs.replace(bucket, elements=size // 4, order=(0, 2, 1, 3))
            time_s = alone_s(sized, graph) * slower.get(algorithm.partition(".")[0], 1.0)
            timings.append(Timing(algorithm=algorithm, median_s=time_s, p10_s=time_s, p90_s=time_s, rounds=3))
        points.append(Point(size_bytes=size, timings=tuple(timings)))
    ladder = Ladder(collective="all_reduce", shape=shape, points=tuple(points))
    return Tuning(measured_at="2026-01-01", machine="test", ladders=(ladder,))


def test_the_plan_follows_what_was_measured() -> None:
    """Broken: a plan would keep to the model where the machine is known to do otherwise."""
    cluster, profile = alternating(), model()
    by_model = search.plan(cluster, profile, 4)
    assert by_model.buckets[0].route.algorithm == "two_level"
    slow = search.plan(cluster, profile, 4, tuning=tuning(two_level=20.0))
    assert slow.buckets[0].route.algorithm == "ring"
    assert "measured on a network like this one (2026-01-01)" in slow.reason


def test_times_as_the_model_says_change_nothing() -> None:
    """Broken: what agrees with the model would correct it."""
    cluster, profile = alternating(), model(elements=625_000)
    without, given = search.plan(cluster, profile, 4), search.plan(cluster, profile, 4, tuning=tuning())
    assert given.label == without.label
    assert given.predicted_step_s == pytest.approx(without.predicted_step_s, rel=0.05)


def test_another_network_corrects_nothing() -> None:
    """Broken: times of a slow network would be taken for those of a fast one."""
    cluster, profile = alternating(), model()
    other = tuning(NetworkShape(ranks=4, hosts=4, bit_per_s=2e8), two_level=20.0)
    assert correction_of(other, cluster, 4, link_graph(cluster, 4)) is None
    plan = search.plan(cluster, profile, 4, tuning=other)
    assert plan.buckets == search.plan(cluster, profile, 4).buckets
    assert "no network like this one" in plan.reason


def test_what_was_measured_can_be_planned() -> None:
    """Broken: the algorithm that `hocket tune` found to be the fastest could not be had in a plan."""
    cluster, profile = alternating(), model()
    measured = tuning()
    (ladder,) = measured.ladders
    points = tuple(
        msgspec.structs.replace(
            point,
            timings=(
                *point.timings,
                Timing(algorithm="halving_doubling", median_s=1e-6, p10_s=1e-6, p90_s=1e-6, rounds=3),
            ),
        )
        for point in ladder.points
    )
    faster = msgspec.structs.replace(measured, ladders=(msgspec.structs.replace(ladder, points=points),))
    plan = search.plan(cluster, profile, 4, tuning=faster)
    assert plan.buckets[0].route.algorithm == "halving_doubling"
    assert "halving-doubling" in plan.label
    assert not any("halving" in each.label for each in search.plan(cluster, profile, 4).evidence.candidates)
    for program in programs(plan):
        program.verify()


def test_owners_are_corrected_by_the_direct_exchange() -> None:
    """Broken: owners would be planned where everybody with everybody was measured to be slow, as senders collide."""
    hosts = tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e8 if at == 0 else 1e9) for at in range(4))
    cluster, profile = Cluster(hosts=hosts), model(gradients=1, elements=1_000_000)
    graph = link_graph(cluster, 4)
    shape = network_shape(range(4), Topology.of([host.name for host in hosts], cluster))

    def slower(factor: float) -> Tuning:
        points = []
        for size in SIZES:
            timings = []
            for algorithm, times in (("ring", 1.0), ("direct", factor)):
                bucket = Bucket(
                    parts=(),
                    elements=size // 4,
                    dtype="f32",
                    route=AllReduce(algorithm=algorithm),
                    order=(0, 1, 2, 3),
                    priority=0,
                )
                time_s = times * alone_s(bucket, graph)
                timings.append(
                    Timing(algorithm=algorithm, median_s=time_s, p10_s=time_s, p90_s=time_s, rounds=3)
                )
            points.append(Point(size_bytes=size, timings=tuple(timings)))
        ladder = Ladder(collective="all_reduce", shape=shape, points=tuple(points))
        return Tuning(measured_at="2026-01-01", machine="test", ladders=(ladder,))

    def of(tuning: Tuning) -> tuple[float, float, set[str]]:
        """The fastest plan of owners and the fastest ring, and the routes of the plan that is chosen."""
        found = search.considered(cluster, profile, 4, tuning=tuning)
        steps: dict[str, float] = {}
        for plan in found.uniform:
            key = name(plan.buckets[0].route)
            steps[key] = min(steps.get(key, math.inf), plan.predicted_step_s)
        return steps["owned"], steps["ring"], {name(bucket.route) for bucket in found.best.buckets}

    owned_s, ring_s, _ = of(slower(1.0))
    assert owned_s < 0.8 * ring_s
    owned_s, ring_s, routes = of(slower(3.0))
    assert owned_s > ring_s
    assert "owned" not in routes

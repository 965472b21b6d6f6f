"""Which algorithm `auto` takes: by what was measured, the same on all ranks."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts import shipped
from hocket.artefacts.algorithms import MEASURED
from hocket.artefacts.network import LATENCY_S
from hocket.artefacts.tuning import Ladder, NetworkShape, Point, Timing, Tuning
from hocket.errors import PolicyError
from hocket.policy import algorithms
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.policy import Policy
from hocket.policy.selection import TIE, distance, fastest, flat_bytes, nearest, network_shape, seconds
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, stages

ALL = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all")
STAR = NetworkShape(ranks=4, hosts=4, bit_per_s=2e8, latency_s=LATENCY_S)


def timing(name, time_s):
    return Timing(algorithm=name, median_s=time_s, p10_s=time_s, p90_s=time_s, rounds=3)


def ladder(points, shape=STAR, collective="all_reduce", runner="engine"):
    """`points`: times by algorithm, by size."""
    return Ladder(
        collective=collective,
        runner=runner,
        shape=shape,
        points=tuple(
            Point(size_bytes=size, timings=tuple(timing(*each) for each in times.items()))
            for size, times in points.items()
        ),
    )


def tuning(*ladders):
    return Tuning(measured_at="now", machine="this", ladders=ladders)


CROSSING = ladder({1000: {"ring": 4.0, "direct": 1.0}, 2000: {"ring": 4.0, "direct": 9.0}})


@pytest.mark.parametrize(
    ("size", "chosen"),
    [(1, "direct"), (1000, "direct"), (1350, "direct"), (1380, "ring"), (2000, "ring"), (10**9, "ring")],
)
def test_times_are_interpolated_between_sizes(size, chosen):
    """A message between two measured sizes would take the algorithm of the wrong one."""
    assert fastest(CROSSING, size, ["ring", "direct"]) == chosen


@given(st.integers(1, 4000), st.permutations([1000, 2000, 3000]))
def test_interpolated_times_lie_between_the_measured_ones(size, order):
    """A file whose points are in another order, or a size at an edge, would give a time that nobody measured."""
    measured = {1000: {"ring": 1.0}, 2000: {"ring": 5.0}, 3000: {"ring": 2.0}}
    found = seconds(ladder({at: measured[at] for at in order}), size)["ring"]
    if size <= 3000:
        assert 1.0 <= found <= 5.0
    else:
        assert found == pytest.approx(2.0 * size / 3000)


@pytest.mark.parametrize("direct_s", [1.0, 1.0 + TIE / 2, 1.0 / (1 + TIE / 2)])
def test_ties_go_to_the_first_named(direct_s):
    """Noise of the measurement would change the algorithm from file to file."""
    tied = ladder({8: {"ring": 1.0, "direct": direct_s}})
    assert fastest(tied, 8, ["ring", "direct"]) == "ring"
    assert fastest(tied, 8, ["direct", "ring"]) == "direct"


def test_only_what_was_measured_is_taken():
    """An algorithm without a time would be compared by nothing."""
    assert fastest(CROSSING, 8, ["bcube", "ring"]) == "ring"
    assert fastest(CROSSING, 8, ["bcube"]) is None


def test_the_most_similar_network_counts():
    """A job of 16 hosts would go by what two ranks of one host measured."""
    slow, fast = (
        ladder({8: {"ring": 1.0}}, STAR),
        ladder({8: {"direct": 1.0}}, NetworkShape(ranks=4, hosts=4, bit_per_s=1e10)),
    )
    here = ladder({8: {"in_place": 1.0}}, NetworkShape(ranks=4))
    both = tuning(here, slow, fast)
    assert nearest(both, "all_reduce", NetworkShape(ranks=16, hosts=16, bit_per_s=4e8)) is slow
    assert nearest(both, "all_reduce", NetworkShape(ranks=3, hosts=3, bit_per_s=2.5e10)) is fast
    assert nearest(both, "all_reduce", NetworkShape(ranks=64)) is here
    assert nearest(both, "broadcast", STAR) is None
    assert nearest(tuning(here), "all_reduce", STAR) is None


def test_shapes_say_what_matters():
    """Racks behind a slow trunk would look like any other hosts."""
    racks = Topology.even(world=8, racks=2, trunk_bit_per_s=1e9)
    assert network_shape(range(8), racks) == NetworkShape(
        ranks=8, hosts=8, racks=2, bit_per_s=1e9, latency_s=LATENCY_S, rack_slowdown=10.0
    )
    assert network_shape(range(4), racks) == NetworkShape(
        ranks=4, hosts=4, bit_per_s=1e10, latency_s=LATENCY_S
    )
    assert network_shape(range(4), Topology.even(world=4, hosts_per_rack=1)) == NetworkShape(ranks=4)
    assert distance(STAR, STAR) == 0


def test_the_limit_of_flat_reductions_is_where_parts_are_faster():
    """Small messages of torch.distributed would take two more barriers than they need, or large ones be reduced by everyone."""
    shape = NetworkShape(ranks=4)
    points = {
        1000: {"flat": 1.0, "parts": 2.0},
        2000: {"flat": 2.0, "parts": 2.0},
        4000: {"flat": 3.0, "parts": 2.0},
    }
    assert flat_bytes(tuning(ladder(points, shape, runner="thread")), 4) == (0, 2000)
    assert flat_bytes(tuning(ladder(points, shape, runner="thread_registered")), 4) == (2000, 0)
    assert flat_bytes(tuning(ladder(points, shape)), 4) == (0, 0)


class Auto(Policy):
    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean")


def taken(topology, by, elements=256):
    text = str(
        stages(
            Auto(),
            Bucket((Gradient("w", (elements,), "f32", 0, 0),), 0),
            TraceContext.of(Auto(), topology, tuning=by),
        )["trace"]
    )
    found = set(re.findall(r"by (\S+)", text))
    assert len(found) == 1, text
    return found.pop()


def test_a_policy_follows_the_tuning():
    """`hocket tune` would change nothing."""
    star = Topology.even(world=4, link_bit_per_s=2e8)
    names = ("ring", "direct", "halving_doubling", "double_binary_tree")
    for name in names:
        by = tuning(ladder({1024: {each: 1.0 if each == name else 2.0 for each in names}}))
        assert taken(star, by).startswith(name)
    assert taken(star, tuning(CROSSING), 250) == "direct"
    assert taken(star, tuning(CROSSING), 500) == "ring"


def test_what_does_not_fit_the_group_is_not_taken():
    """Two levels of ranks that are not next to one another would be refused, instead of the next best being taken."""
    by = tuning(ladder({8: {"two_level.rack": 1.0, "ring": 2.0}}))
    racks = Topology.even(world=4, racks=2, trunk_bit_per_s=1e9)
    assert algorithms.choose("all_reduce", [0, 1, 2, 3], 8, racks, by) == ("two_level", (2, 2))
    assert algorithms.choose("all_reduce", [0, 2, 1, 3], 8, racks, by) == ("ring", ())


@pytest.mark.parametrize("what", ALL)
def test_there_is_always_a_choice(what):
    """A policy without a tuning of its own could not be traced; what the tuning that comes with Hocket names would not exist."""
    for world, racks, hosts in itertools.product([1, 2, 3, 4, 6, 8, 16], [1, 2], [1, 2, None]):
        if world < racks:
            continue
        topology = Topology.even(world=world, racks=racks, hosts_per_rack=hosts, trunk_bit_per_s=1e8)
        for size in (4, 10**5, 10**8):
            chosen = algorithms.choose(what, range(world), size, topology, tuning())
            assert chosen in algorithms.fitting(what, range(world), topology).values()


def test_names_of_the_shipped_tuning_are_known():
    """A misspelt name would never be taken."""
    found = {
        each.algorithm
        for ladder in shipped.tuning().ladders
        for point in ladder.points
        for each in point.timings
    }
    assert found <= {*MEASURED, "flat", "parts"}


def test_the_shipped_tuning_chooses_what_was_fastest():
    """`auto` would be slower than what a person would name by hand, on the very networks that were measured."""
    checked = 0
    for each in shipped.tuning().ladders:
        for point in each.points if each.runner == "engine" else ():
            times_s = {timing.algorithm: timing.median_s for timing in point.timings}
            names = sorted(times_s, key=MEASURED.index)
            chosen = fastest(nearest(shipped.tuning(), each.collective, each.shape), point.size_bytes, names)
            assert times_s[chosen] <= min(times_s.values()) * (1 + TIE)
            checked += 1
    assert checked > 0


def test_nothing_measured_is_said(monkeypatch):
    """A broken installation would choose by chance."""
    monkeypatch.setattr(shipped, "tuning", tuning)
    with pytest.raises(
        PolicyError, match="nothing was measured of broadcast over 2 ranks\nhint: `hocket tune`"
    ):
        algorithms.choose("broadcast", [0, 1], 8, Topology.even(world=2), tuning())


def test_the_choice_depends_on_nothing_but_its_arguments():
    """Ranks would compile different programs."""
    topology = Topology.even(world=8, racks=2, trunk_bit_per_s=1e8)
    cases = list(itertools.product(ALL, (8, 10**5, 10**7)))
    first = [algorithms.choose(what, range(8), size, topology, shipped.tuning()) for what, size in cases]
    again = [
        algorithms.choose(what, range(8), size, topology, shipped.tuning()) for what, size in reversed(cases)
    ]
    assert first == again[::-1]

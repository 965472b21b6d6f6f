"""Plans that are kept but for the orders of their ranks."""

from itertools import pairwise

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Owned, Owner
from hocket.artefacts.profile import Gradient as Profiled
from hocket.measure.quick import UNEVEN, uneven, with_paths
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.reordered import in_fastest_orders, matters
from hocket.planning.search import neutral_profile

WEIGHTS = [Gradient(name, (1 << 20,), "f32") for name in "abc"]
RING = AllReduce(algorithm="ring")


def plan(*ways):
    made = [buckets([[own]], *way)[0] for own, way in zip(WEIGHTS, ways, strict=False)]
    return plan_of(made, len(ways[0][1]), label="given")


def profile(made):
    return neutral_profile(
        Profiled(name=part.variable, shape=(1 << 20,), dtype="f32", ready_s=0.0, needed_s=0.0)
        for bucket in made.buckets
        for part in bucket.parts
    )


def star(count, rate=4e8):
    return Cluster(
        hosts=tuple(Host(name=f"h{at}", rack="r", bandwidth_bit_per_s=rate) for at in range(count)),
        racks=(Rack(name="r"),),
    )


def test_a_slow_path_is_left():
    """A job would crawl for days over a link that became slow."""
    rates = [[0.0 if a == b else 4e8 for b in range(5)] for a in range(5)]
    for a, b in ((1, 2), (2, 1)):
        rates[a][b] = 2e7
    assert uneven(rates, [(0, 1, 2, 3, 4)], UNEVEN) == [(1, 2)]
    latencies_s = [[0.0 if a == b else 1e-4 for b in range(5)] for a in range(5)]
    cluster = with_paths(star(5), {(1, 2): 2e7, (2, 1): 2e7}, latencies_s)
    made = plan((RING, (0, 1, 2, 3, 4)))
    (bucket,) = in_fastest_orders(made, cluster, profile(made)).buckets
    neighbours = {frozenset(pair) for pair in pairwise((*bucket.order, bucket.order[0]))}
    assert frozenset((1, 2)) not in neighbours


def test_a_slow_host_is_no_slow_path():
    """Orders would be sought for a host that is slow wherever it stands."""
    rates = [[0.0 if a == b else 5e7 if 2 in (a, b) else 2e8 for b in range(4)] for a in range(4)]
    assert uneven(rates, [(0, 1, 2, 3)], UNEVEN) == []


@pytest.mark.parametrize(
    ("given", "changes"), [((0, 1, 2, 3, 4, 5, 6, 7), True), ((0, 2, 4, 6, 1, 3, 5, 7), False)]
)
def test_an_order_that_goes_to_and_fro_between_racks_is_repaired(given, changes):
    """A job whose ranks alternate between racks would cross the trunk at every step; one that does not would be made to."""
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", rack=f"r{at % 2}", bandwidth_bit_per_s=1e9) for at in range(8)),
        racks=(Rack(name="r0", uplink_bit_per_s=1e9), Rack(name="r1", uplink_bit_per_s=1e9)),
    )
    made = plan((RING, given))
    (bucket,) = in_fastest_orders(made, cluster, profile(made)).buckets
    assert (bucket.order != given) == changes
    assert sum(a % 2 != b % 2 for a, b in pairwise((*bucket.order, bucket.order[0]))) == 2


def test_each_class_of_buckets_has_an_order_of_its_own_and_owners_stay():
    """Buckets that go another way would all be given one order, or a plan's owners would move with it."""
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", rack=f"r{at % 2}", bandwidth_bit_per_s=1e9) for at in range(4)),
        racks=(Rack(name="r0", uplink_bit_per_s=1e8), Rack(name="r1", uplink_bit_per_s=1e8)),
    )
    owned = Owned(owners=(Owner(rank=0),))
    made = plan((RING, (0, 1, 2, 3)), (RING, (1, 3, 0, 2)), (owned, (0, 1, 2, 3)))
    found = in_fastest_orders(made, cluster, profile(made))
    first, second, last = (bucket.order for bucket in found.buckets)
    assert sum(a % 2 != b % 2 for a, b in pairwise((*first, first[0]))) == 2
    assert second == (1, 3, 0, 2)
    assert (last, found.buckets[2].route) == ((0, 1, 2, 3), owned)
    assert found.label == "given"


def test_orders_that_do_not_matter_are_not_sought():
    """A thread would look for what cannot be found."""
    assert not matters(plan((AllReduce(algorithm="direct"), (0, 1, 2, 3))))
    assert not matters(plan((RING, (0, 1))))
    assert matters(plan((RING, (0, 1, 2))))

"""What a probe says of its own numbers, and when it says nothing."""

import pytest

from hocket.tools.probe.certainty import imprecise, lopsided_rates, lopsided_trips
from hocket.tools.probe.datagrams import Trips

pytestmark = pytest.mark.hosts

NAMES = [f"n{at}" for at in range(9)]


def trip(us, precision=0.01):
    return Trips(us * 1e-6, 640, 0, 0, precision)


def test_nothing_is_said_of_what_is_known():
    """Broken: every probe would come with warnings that nobody reads."""
    assert imprecise({(0, 1): trip(100), (1, 0): trip(100, 0.02)}, NAMES, 1.0) == ""
    assert lopsided_trips({(0, 1): trip(100), (1, 0): trip(103)}, NAMES) == ""
    assert lopsided_trips({(0, 1): trip(100)}, NAMES) == ""
    # Apart, but both are known to 30 % only.
    assert lopsided_trips({(0, 1): trip(100, 0.3), (1, 0): trip(150, 0.3)}, NAMES) == ""
    assert lopsided_rates([[5e10, 1e9], [0.92e9, 5e10]], NAMES) == ""
    assert lopsided_rates([], NAMES) == ""


def test_the_worst_pairs_are_named_first():
    """Broken: of many pairs those that matter would be left out."""
    trips = {(0, at): trip(100, at / 10) for at in range(1, 9)}
    said = imprecise(trips, NAMES, 0.5)
    assert said.startswith(
        "the latency of 8 of 8 measurements is not known to 2%: n0 to n8 ±80 %; n0 to n7 ±70 %;"
    )
    assert "and 3 more; the budget of 0.5 s a pair was over" in said
    rates = [[0, 1e9, 1e9], [5e8, 0, 1e9], [1e8, 1e9, 0]]
    said = lopsided_rates(rates, NAMES)
    assert (
        said
        == "rates differ by direction, for 2 pairs: n0 to n2 1000 Mbit/s, back 100; n0 to n1 1000 Mbit/s, back 500"
    )
    assert "n0 and n1 100 and 300 µs" in lopsided_trips({(0, 1): trip(100), (1, 0): trip(300)}, NAMES)

"""Pairings of a probe."""

from __future__ import annotations

from itertools import combinations

import pytest

from hocket.measure.rounds import crossing, tournament, within

pytestmark = pytest.mark.hosts


@pytest.mark.parametrize("hosts", range(10))
def test_every_pair_meets_once_and_nobody_is_in_two_places(hosts: int) -> None:
    """Broken: a pair would never be measured, or two measurements would share a host's link."""
    rounds = tournament(hosts)
    assert len(rounds) == (0 if hosts < 2 else hosts - 1 + hosts % 2)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(hosts), 2))
    for pairs in rounds:
        seated = [host for pair in pairs for host in pair]
        assert len(seated) == len(set(seated))


def test_flows_between_racks_leave_all_hosts_for_different_ones() -> None:
    """Broken: one host's link would limit the flows and a shared trunk would not be seen."""
    flows = crossing(((0, 1), (2,), (3,)), 0)
    assert flows[:2] == ((0, 2), (1, 3))
    assert {source for source, _ in flows} == {0, 1, 2, 3}
    assert (0, 3) in crossing(((0, 1), (2,), (3,)), 1)


def test_flows_within_racks_leave_single_hosts_out() -> None:
    """Broken: a host alone in its rack would measure a connection to itself."""
    assert within(((0, 3), (1,), (2,))) == ((0, 3), (3, 0))

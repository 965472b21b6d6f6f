"""Racks, trunks and links from measured numbers."""

from __future__ import annotations

import pytest

from hocket.measure.topology import find_racks, host_rates, settle_capacities, settle_rates

pytestmark = pytest.mark.hosts

FLAT = [[1e-4] * 8 for _ in range(8)]


def matrix(racks: list[int], near: float, far: float) -> list[list[float]]:
    return [[near if a == b else far for b in racks] for a in racks]


@pytest.mark.parametrize("racks", [[0, 1, 0, 1], [0, 0, 1, 2], [0, 1, 2, 0, 1, 2], [0, 0, 0, 1]])
def test_a_slow_trunk_separates_racks(racks: list[int]) -> None:
    """Broken: ranks of different racks would be planned as neighbours."""
    found = find_racks(matrix(racks, 956e6, 96e6), FLAT)
    assert [next(i for i, rack in enumerate(found) if host in rack) for host in range(len(racks))] == racks


def test_even_rates_with_noise_are_one_rack() -> None:
    """Broken: noise would invent racks and the plan would serve a topology that is not there."""
    noisy = [[900e6 + 20e6 * ((3 * i + 5 * j) % 7) for j in range(5)] for i in range(5)]
    assert find_racks(noisy, FLAT) == ((0, 1, 2, 3, 4),)


def test_latency_separates_racks_of_equal_rates() -> None:
    """Broken: racks joined by a fast but distant link would be taken for one."""
    even = matrix([0, 0, 0, 0], 1e9, 1e9)
    assert find_racks(even, matrix([0, 1, 0, 1], 50e-6, 400e-6)) == ((0, 2), (1, 3))
    assert find_racks(even, matrix([0, 1, 0, 1], 4e-6, 12e-6)) == ((0, 1, 2, 3),)  # within scheduling noise


def test_gap_that_makes_no_groups_is_no_rack() -> None:
    """Broken: one bad cable would split a rack along no line at all."""
    rates = matrix([0, 0, 0, 0], 1e9, 1e9)
    rates[0][1] = rates[1][0] = 1e8
    assert find_racks(rates, FLAT) == ((0, 1, 2, 3),)


def test_shared_trunk_is_the_sum_of_its_flows_and_contention_is_taken_out() -> None:
    """Broken: the trunk's rate, the planner's most important number, would be wrong."""
    measured = matrix([0, 1, 0, 1], 956e6, 48e6)  # two pairs of a tournament's round shared the trunk
    racks = ((0, 2), (1, 3))
    alone = {(0, 1): 96e6, (1, 0): 96e6}
    at_once = [{(0, 1): 60e6, (2, 3): 34e6, (1, 0): 50e6, (3, 2): 45e6}]
    trunks, rates = settle_rates(measured, racks, alone, at_once)
    assert trunks == [96e6, 96e6]  # one flow alone filled it
    assert rates[0][1] == rates[2][3] == rates[1][2] == 96e6


def test_a_trunk_faster_than_its_hosts_is_the_sum_of_their_flows() -> None:
    """Broken: an oversubscribed trunk would be planned at the rate of one host's link."""
    racks = ((0, 1, 2), (3, 4, 5))
    measured = matrix([0, 0, 0, 1, 1, 1], 1e9, 5e8)
    alone = {(0, 3): 1e9, (3, 0): 1e9}
    at_once = [dict.fromkeys(zip((0, 1, 2, 3, 4, 5), (3, 4, 5, 0, 1, 2), strict=True), 500000000.0)]
    trunks, _ = settle_rates(measured, racks, alone, at_once)
    assert trunks == [1.5e9, 1.5e9]


def test_paths_that_are_slow_one_by_one_are_no_shared_trunk() -> None:
    """Broken: flows with a rate limit each would be planned as if they took from one another."""
    measured = matrix([0, 1, 0, 1], 956e6, 96e6)
    alone = {(0, 1): 96e6, (1, 0): 96e6}
    at_once = [{(0, 1): 95e6, (2, 3): 95e6, (1, 0): 96e6, (3, 2): 95e6}]
    trunks, rates = settle_rates(measured, ((0, 2), (1, 3)), alone, at_once)
    assert trunks == [None, None]
    assert rates == measured


def test_one_rack_has_no_trunk() -> None:
    """Broken: a cluster in one rack would get a trunk that limits nothing, or a crash."""
    even = matrix([0, 0, 0], 1e9, 1e9)
    assert settle_rates(even, ((0, 1, 2),), {}, []) == ([None], even)


def test_a_half_duplex_link_counts_half() -> None:
    """Broken: a host whose link cannot send and receive at once would be planned at twice its rate."""
    even = matrix([0, 0], 1e9, 1e9)
    assert host_rates(even, {(0, 1): 5e8, (1, 0): 5e8}) == [5e8, 5e8]
    assert host_rates(even, {(0, 1): 1.1e9, (1, 0): 9e8}) == [1e9, 1e9]


def test_a_host_has_a_rate_for_each_direction() -> None:
    """Broken: a host that sends slowly would spread as much as the others, who would wait for it."""
    slow_out = [[0, 1e8, 1e8], [1e9, 0, 1e9], [1e9, 1e9, 0]]
    slow_in = [list(column) for column in zip(*slow_out, strict=True)]
    assert host_rates(slow_out, {}) == [(1e8, 1e9), 1e9, 1e9]
    assert host_rates(slow_in, {}) == [(1e9, 1e8), 1e9, 1e9]
    # Measurements of one rate differ by a few percent.
    assert host_rates([[0, 9.4e8], [9.7e8, 0]], {}) == [9.4e8, 9.4e8]


def test_a_trunk_has_a_rate_for_each_direction() -> None:
    """Broken: a site that sends slowly to the others would be planned as if it received as slowly."""
    racks = ((0, 2), (1, 3))
    measured = matrix([0, 1, 0, 1], 956e6, 48e6)
    alone = {(0, 1): 2e7, (1, 0): 96e6}
    at_once = [{(0, 1): 1e7, (2, 3): 1e7, (1, 0): 50e6, (3, 2): 45e6}]
    assert settle_rates(measured, racks, alone, at_once)[0] == [(2e7, 96e6), (96e6, 2e7)]
    assert settle_capacities(measured, racks, alone)[0] == [(2e7, 96e6), (96e6, 2e7)]

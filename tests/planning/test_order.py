"""Where ranks run and in which order they are visited."""

from __future__ import annotations

import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.errors import UsageError
from hocket.planning.order import contiguous_order, placement, rack_blocks


def racked(*racks: tuple[str, int]) -> Cluster:
    hosts = [
        Host(name=f"h{i}", rack=rack, slots=slots, bandwidth_bit_per_s=1e9)
        for i, (rack, slots) in enumerate(racks)
    ]
    return Cluster(hosts=tuple(hosts))


def test_contiguous_order_gathers_racks_as_they_first_appear() -> None:
    """Broken: ranks of a rack would not be neighbours and the trunk would carry more than it must."""
    assert contiguous_order(racked(("b", 1), ("a", 2), ("b", 1), ("a", 1)), 5) == (0, 3, 1, 2, 4)


def test_placement_fills_slots_in_host_order() -> None:
    """Broken: the planner would think ranks on other hosts than the launcher starts them on."""
    assert placement(racked(("a", 2), ("b", 3)), 4) == (0, 0, 1, 1)


def test_blocks_leave_out_hosts_without_ranks() -> None:
    """Broken: a smaller world than the cluster's would get empty blocks."""
    assert rack_blocks(racked(("a", 1), ("b", 1)), 1) == ((0,),)


@pytest.mark.parametrize("world", [0, -1, 3])
def test_worlds_that_do_not_fit_are_refused(world: int) -> None:
    """Broken: a job with more ranks than slots would be planned on hosts that do not exist."""
    with pytest.raises(UsageError, match=f"world of {world} ranks"):
        placement(racked(("a", 1), ("a", 1)), world)

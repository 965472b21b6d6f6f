"""Groups of the policies that shorten what travels between racks, and sum within them before."""

from __future__ import annotations

from hocket.policy.context import Context


def levels(cx: Context) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks whose buffers are summed before codes are made, and those that exchange codes, by the agreed `levels`.

    Two levels are a rack, or a host where there is one rack alone, and the leaders of all. One level is each rank by itself, and
    all ranks.
    """
    if int(cx.agreed("levels")) < 2:
        return (cx.rank,), cx.ranks
    return (cx.rack_ranks, cx.rack_leaders) if len(cx.rack_leaders) > 1 else (cx.local_ranks, cx.leaders)

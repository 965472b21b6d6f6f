"""Two-level ring: a chain within each group, a ring among the leaders, and back along the chain (SDCC, case 3).

Only leaders communicate between groups, so slow links carry the minimum. A group is a host with several ranks, or a
rack.
"""

from typing import ClassVar

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy, Value


class TwoLevelRing(Policy):
    """Mean over hosts, or over racks if each rank has its own host."""

    parameters: ClassVar[dict[str, Value]] = {"chunk_bytes": 128 << 10}

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Reduce within groups, all-reduce among leaders, broadcast within groups."""
        by_host = len(cx.leaders) < cx.world
        group, leaders = (cx.local_ranks, cx.leaders) if by_host else (cx.rack_ranks, cx.rack_leaders)
        cx.reduce_to(buffer, group[0], group=group, algorithm="ring")
        if cx.rank == group[0]:
            cx.all_reduce(buffer, group=leaders, algorithm="ring")
            cx.scale(buffer, 1 / cx.world)
        cx.broadcast(buffer, group[0], group=group, algorithm="ring")

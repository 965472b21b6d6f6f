"""The host's library inside hosts, Hocket between them: each rank's part of a host's sum is reduced with those of the other hosts.

On devices, the library is theirs (NCCL on CUDA), gradients stay in their memory, and each rank brings its part alone to the host
and back. So all ranks of a host send at once, and each part passes the bus and the network once.
"""

from itertools import pairwise

from hocket.policy.context import Context
from hocket.policy.handles import Buffer
from hocket.policy.policy import Policy


class LibraryInside(Policy):
    """Mean over all ranks. Hosts may have unequal numbers of ranks; one that is alone on its host needs no library."""

    def on_buffer_ready(self, cx: Context, buffer: Buffer) -> None:
        """Reduce-scatter within hosts, all-reduce of each part among those who have it, all-gather within hosts."""
        hosts = [[rank for rank in cx.ranks if cx.hosts[rank] == host] for host in dict.fromkeys(cx.hosts)]
        alone = len(cx.local_ranks) == 1
        if not alone:
            cx.reduce_scatter(buffer, group=cx.local_ranks, library="device")
        # Where hosts have as many ranks each, as they mostly have, these are the parts of one host.
        ends = sorted({buffer.elements * at // len(host) for host in hosts for at in range(len(host) + 1)})
        for start, stop in pairwise(ends):
            group = [host[_owner(start, buffer.elements, len(host))] for host in hosts]
            if cx.rank in group:
                cx.all_reduce(buffer[start:stop], group=group)
                cx.scale(buffer[start:stop], 1 / cx.world)
        if not alone:
            cx.all_gather(buffer, group=cx.local_ranks, library="device")


def _owner(element: int, elements: int, ranks: int) -> int:
    """Return which of the parts of a buffer has an element."""
    return next(at for at in range(ranks) if element < elements * (at + 1) // ranks)

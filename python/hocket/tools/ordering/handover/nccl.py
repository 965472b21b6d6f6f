"""NCCL: the rank with which each process calls `ncclCommInitRank`, one line per rank: rank, host, place on the host.

NCCL searches rings and trees within a host by itself, and joins hosts in the order of their ranks
(https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html), so ranks suffice for any graph that NCCL
finds; `NCCL_GRAPH_FILE` is not needed.
"""

from __future__ import annotations

from hocket.tools.ordering.handover.layout import Layout


def text(layout: Layout) -> str:
    """The table.

    >>> text(Layout((("b", 2), ("a", 1))))
    '0 b 0\\n1 b 1\\n2 a 0\\n'
    """
    return "".join(f"{rank} {host} {local}\n" for rank, (host, local) in enumerate(layout.ranks()))

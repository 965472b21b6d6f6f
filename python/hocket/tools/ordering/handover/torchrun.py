"""torchrun's node ranks: its options on each host.

Options: https://docs.pytorch.org/docs/stable/elastic/run.html. The static rendezvous, torchrun's default, keeps node ranks; with
`--rdzv-backend=c10d` nodes get ranks in the order of arrival.
"""

from __future__ import annotations

from hocket.tools.ordering.handover.layout import Layout

PORT = 29500
"""torchrun's own default."""


def text(layout: Layout) -> str:
    """A line for each host: its name, then the options.

    >>> print(text(Layout((("b", 2), ("a", 1)))), end="")
    b --nnodes=2 --node-rank=0 --nproc-per-node=2 --master-addr=b --master-port=29500
    a --nnodes=2 --node-rank=1 --nproc-per-node=1 --master-addr=b --master-port=29500
    """
    nodes, master = len(layout.hosts), layout.hosts[0][0]
    return "".join(
        f"{host} --nnodes={nodes} --node-rank={rank} --nproc-per-node={slots} --master-addr={master} --master-port={PORT}\n"
        for rank, (host, slots) in enumerate(layout.hosts)
    )

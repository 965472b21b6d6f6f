"""Open MPI's rankfile: `mpirun --map-by rankfile:file=FILE` (5), `mpirun --rankfile FILE` (4), with the hostfile beside it.

Format: "Rankfiles" in mpirun(1), https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html: `rank N=HOST slot=CPU`.
"""

from __future__ import annotations

from hocket.tools.ordering.handover.layout import Layout


def text(layout: Layout) -> str:
    """The file; ranks of a host are bound to its cores one by one.

    >>> text(Layout((("b", 2), ("a", 1))))
    'rank 0=b slot=0\\nrank 1=b slot=1\\nrank 2=a slot=0\\n'
    """
    ranks = enumerate(layout.ranks())
    return "".join(f"rank {rank}={host} slot={local}\n" for rank, (host, local) in ranks)

"""MPICH's host file (Hydra; also Intel MPI and MVAPICH): `mpiexec -f FILE`.

Format: "Hydra's host file" in https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md:
`HOST:PROCESSES`, filled in the file's order.
"""

from __future__ import annotations

from hocket.job.store.address import join
from hocket.tools.ordering.handover.layout import Layout


def text(layout: Layout) -> str:
    """The file.

    >>> text(Layout((("b", 2), ("a", 1))))
    'b:2\\na:1\\n'
    >>> text(Layout((("fe80::1", 2),)))
    '[fe80::1]:2\\n'
    """
    named = ((*host.rpartition("@"), slots) for host, slots in layout.hosts)
    return "".join(f"{user}{at}{join(machine, slots)}\n" for user, at, machine, slots in named)

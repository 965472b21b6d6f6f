"""Open MPI's hostfile: `mpirun --hostfile FILE --map-by slot`.

Format: "Hostfiles" in mpirun(1), https://docs.open-mpi.org/en/v5.0.x/man-openmpi/man1/mpirun.1.html. Hosts are filled in the
file's order; a launcher that runs on a listed host may still put this host first, which a rankfile forbids.
"""

from __future__ import annotations

from hocket.tools.ordering.handover.layout import Layout


def text(layout: Layout) -> str:
    """The file.

    >>> text(Layout((("b", 2), ("a", 1))))
    'b slots=2\\na slots=1\\n'
    """
    return "".join(f"{host} slots={slots}\n" for host, slots in layout.hosts)

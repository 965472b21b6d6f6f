"""SLURM's host file: `SLURM_HOSTFILE=FILE srun --distribution=arbitrary`.

Format: `--distribution=arbitrary` in srun(1), https://slurm.schedmd.com/srun.html: a host for each task, in the order of tasks.
"""

from __future__ import annotations

from hocket.tools.ordering.handover.layout import Layout


def text(layout: Layout) -> str:
    """The file.

    >>> text(Layout((("b", 2), ("a", 1))))
    'b\\nb\\na\\n'
    """
    return "".join(f"{host}\n" for host, _ in layout.ranks())

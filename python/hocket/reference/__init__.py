"""The executable definition of programs: one NumPy function per op, and an executor of these functions.

It is slow, deterministic and in one process; the executors that move real data are tested against it.
"""

from hocket.reference.executor import run

__all__ = ["run"]

"""The living definition of programs: one NumPy function per op, and the executor made of them.

Slow, in one process, deterministic; the executors that move real data are tested against it.
"""

from hocket.reference.executor import run

__all__ = ["run"]

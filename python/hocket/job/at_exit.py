"""Test, at exit, whether this process ends now, so that its exit code will be known."""

from __future__ import annotations

import sys

LINGER_S = 1.0
"""Time that rank 0 then keeps its store for the others: some may wait for its goodbye, which comes after that."""


def process_ends() -> bool:
    """Return, to a function that `atexit` calls, whether the interpreter does so since it ends, and the C library's `exit` follows.

    A child that multiprocessing has forked calls these functions itself, and then `os._exit`. Other code may call the same function
    while the process goes on.
    """
    return sys._getframe(1).f_back is None

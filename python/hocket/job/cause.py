"""Rank that causes another one to fail, from the exception that ends the latter."""

from __future__ import annotations

from hocket.errors import PeerError, RendezvousError, UsageError

CHAIN_MAX = 100
"""Limit of exceptions that are followed from one to its cause; a chain may be a circle."""


def cause_of(error: BaseException, own: int) -> tuple[int, str] | None:
    """Return the other rank that an exception, or one that led to it, blames, and for what; None: no other rank.

    >>> cause_of(PeerError("rank 1 has been silent", rank=1, why="silent"), own=0)
    (1, 'silent')
    """
    found: BaseException | None = error
    for _ in range(CHAIN_MAX):
        if isinstance(found, PeerError | RendezvousError | UsageError) and found.rank not in (None, own):
            return found.rank, _why(found)
        found = None if found is None else found.__cause__ or found.__context__
    return None


def _why(error: PeerError | RendezvousError | UsageError) -> str:
    if isinstance(error, PeerError):
        return error.why or "failed"
    return "timeout" if isinstance(error, RendezvousError) and error.missing else "failed"

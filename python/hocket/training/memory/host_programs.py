"""Programs that all ranks of a host would compile alike: one rank compiles, and the others take their parts from the cache.

The name of an entry is a digest of everything that determines the programs, so no rank has to be told where to look. A lock on the
cache decides which rank compiles. A rank without a usable cache, or one that has waited too long for the lock, compiles for itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from hocket._native import Program
from hocket.errors import ProgramError
from hocket.job.known import cache
from hocket.job.known.cache import Cache
from hocket.job.rendezvous import Job
from hocket.planning import compile as compiling
from hocket.planning import routes


def compiled(job: Job, determined_by: bytes, make: Callable[[], Sequence[Program]]) -> list[Program]:
    """Return the programs that `make` makes by `hocket.planning`: whole ones, or this rank's parts. Raises any error of `make`.

    `determined_by`: equal where the arguments are.
    """
    kept = Cache.of(job.settings)
    host = ranks_of_host(job)
    relays = job.relays()
    all_of = cache.key(b"programs", _code(), determined_by, repr(relays).encode())
    names = {rank: f"{all_of}-{rank}" for rank in host}
    found = read(kept.get(names[job.rank]))
    if found is not None:
        return found
    with kept.locked(f"{all_of}-of-{host[0]}", job.settings.timeout_s):
        found = read(kept.get(names[job.rank]))
        if found is not None:
            return found
        # A part of a program lacks what others pass on.
        made = [each.relayed(relays) if relays else each for each in make()]
        if kept.bytes_max:
            kept.put_all(dict(zip(names.values(), Program.parts_to_bytes(made, host), strict=True)))
        return made


@functools.cache
def _code() -> bytes:
    """Return the source of the Python code that makes programs: in an edited checkout, entries of earlier code must not be used."""
    return b"".join(Path(module.__file__ or "").read_bytes() for module in (compiling, routes))


def ranks_of_host(job: Job) -> list[int]:
    """Return the ranks on this rank's host."""
    return [rank for rank in range(job.world) if job.hosts[rank] == job.hosts[job.rank]]


def read(content: bytes | None) -> list[Program] | None:
    """Return the programs of an entry; None if there is no entry, or none of this kind."""
    if content is None:
        return None
    try:
        return Program.parts_from_bytes(content)
    except ProgramError:
        return None

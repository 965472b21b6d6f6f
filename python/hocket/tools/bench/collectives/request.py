"""Request for the ranks: written by the process that starts them, read by each."""

from __future__ import annotations

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Tuning


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a benchmark. Sizes are bytes of a rank's buffer; `algorithm` and `chunk_bytes` (None: a plan's) are for the
    engine.

    `tcp`: each rank pretends to be a host, which denies shared memory to all contenders. `cluster`: the emulated one
    that the ranks run on. `tuning`: decides for the algorithm `auto` and the calling threads (None: the one that comes
    with Hocket). `mpirun`: the MPI contender's (None: the one that is found).
    """

    what: str
    contenders: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    dtype: str
    rounds: int
    algorithm: str
    chunk_bytes: int | None
    tcp: bool
    cluster: Cluster | None = None
    tuning: Tuning | None = None
    mpirun: str | None = None

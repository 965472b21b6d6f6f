"""What the ranks are asked to measure: written by the process that starts them, read by each."""

from __future__ import annotations

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.tuning import Tuning


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are bytes of a rank's buffer; `algorithm` and `chunk_bytes` (None: a plan's) are for the engine.

    `tcp`: ranks pretend to be on hosts of their own, which takes shared memory from all contenders. `cluster`: the emulated one
    that the ranks run on. `tuning`: what the algorithm `auto` and the calling threads go by (None: that which comes with Hocket).
    `mpirun`: whose MPI is the contender (None: the one that is found).
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

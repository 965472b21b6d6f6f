"""Parameter servers: each variable, in the model's order, on the host with the fewest bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import FUSED_BYTES, Size, fused
from hocket.planning.job import Job


class PSLoadBalancing(Builder):
    """Whole variables owned by first ranks of hosts; those of one owner share buckets of up to `fused_bytes`."""

    fused_bytes: Size = 0
    tries: ClassVar[Tries] = {"fused_bytes": FUSED_BYTES}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Return the buckets of each owner."""
        loads = {host.ranks[0]: 0 for host in job.hosts}
        owners = {}
        for variable in job.variables:
            least = min(loads, key=loads.__getitem__)
            loads[least] += variable.bytes
            owners[variable.name] = job.owned([least])
        return fused(job, owners, self.fused_bytes)

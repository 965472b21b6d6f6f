"""Parameter servers: each variable, in the model's order, on the host with the fewest bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import FUSED_BYTES, Size
from hocket.planning.job import Job


class PSLoadBalancing(Builder):
    """Whole variables owned by first ranks of hosts; those of one owner share buckets of up to `fused_bytes`."""

    fused_bytes: Size = 0
    tries: ClassVar[Tries] = {"fused_bytes": FUSED_BYTES}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield the buckets of each owner."""
        loads = {host.ranks[0]: 0 for host in job.hosts}
        owners = {}
        for variable in job.variables:
            least = min(loads, key=loads.__getitem__)
            loads[least] += variable.bytes
            owners[variable.name] = job.owned([least])
        dense = job.backward(job.dense)
        for group in job.groups(dense, size_bytes=self.fused_bytes, apart=lambda each: owners[each.name]):
            yield job.bucket(group, owners[group[0].name])

"""Parameter servers: variables in as many shards of rows as the smallest number from 2 on that is no divisor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import FUSED_BYTES, Size, sharded, uneven_shards
from hocket.planning.job import Job


class UnevenPartitionedPS(Builder):
    """Variables owned by several hosts; those with the same owners share buckets of up to `fused_bytes`."""

    fused_bytes: Size = 0
    tries: ClassVar[Tries] = {"fused_bytes": FUSED_BYTES}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield the buckets of each set of owners."""
        owners = sharded(job, uneven_shards)
        dense = job.backward(job.dense)
        for group in job.groups(dense, size_bytes=self.fused_bytes, apart=lambda each: owners[each.name]):
            yield job.bucket(group, owners[group[0].name])

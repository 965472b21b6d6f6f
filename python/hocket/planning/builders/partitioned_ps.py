"""Parameter servers: variables in as many shards of rows as the smallest divisor from 2 on, on several hosts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import FUSED_BYTES, Size, even_shards, fused, sharded
from hocket.planning.job import Job


class PartitionedPS(Builder):
    """Variables owned by several hosts; those with the same owners share buckets of up to `fused_bytes`."""

    fused_bytes: Size = 0
    tries: ClassVar[Tries] = {"fused_bytes": FUSED_BYTES}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Return the buckets of each set of owners."""
        return fused(job, sharded(job, even_shards), self.fused_bytes)

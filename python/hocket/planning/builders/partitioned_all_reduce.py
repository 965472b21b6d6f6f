"""All-reduce of groups of shards: AutoDist's `PartitionedAR`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import CHUNKS, Count, even_shards, grouped
from hocket.planning.job import Job


class PartitionedAllReduce(Builder):
    """Rings of `chunk` shards of rows; a variable has as many as the smallest divisor from 2 on."""

    chunk: Count = 128
    tries: ClassVar[Tries] = {"chunk": CHUNKS}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield a bucket for each group."""
        counts = {each.name: len(even_shards(each.rows)) for each in job.dense}
        for pieces in grouped(job, counts, self.chunk):
            yield job.bucket(pieces, job.ring)

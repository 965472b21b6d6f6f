"""All-reduce of groups of variables: AutoDist's `AllReduce`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import CHUNKS, Count
from hocket.planning.job import Job


class AllReduceGroups(Builder):
    """Rings of `chunk` variables in the model's order."""

    chunk: Count = 128
    tries: ClassVar[Tries] = {"chunk": CHUNKS}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield a bucket for each group."""
        for group in job.groups(job.dense, count=self.chunk):
            yield job.bucket(group, job.ring)

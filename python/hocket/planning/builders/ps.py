"""Parameter server: every variable on the first host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import FUSED_BYTES, Size
from hocket.planning.job import Job


class PS(Builder):
    """All variables owned by the first rank, in buckets of up to `fused_bytes`."""

    fused_bytes: Size = 0
    tries: ClassVar[Tries] = {"fused_bytes": FUSED_BYTES}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield buckets of variables in backward's order."""
        for group in job.groups(job.backward(job.dense), size_bytes=self.fused_bytes):
            yield job.bucket(group, job.owned([0]))

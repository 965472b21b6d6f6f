"""All-reduce of groups of shards along a random axis: AutoDist's `RandomAxisPartitionAR`.

Parts along another axis than the first move as many bytes: they are as many equal parts of the row-major elements.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import CHUNKS, Count, even_shards, grouped
from hocket.planning.job import Job
from hocket.planning.question import SEED


class RandomAxisAllReduce(Builder):
    """Rings of `chunk` shards; a variable has as many as the smallest divisor of an axis longer than 1."""

    chunk: Count = 128
    tries: ClassVar[Tries] = {"chunk": CHUNKS}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield a bucket for each group."""
        draw = random.Random(SEED)  # noqa: S311  # of axes
        counts = {}
        for variable in job.variables:
            axes = [size for size in variable.shape if size > 1]
            counts[variable.name] = len(even_shards(draw.choice(axes) if axes else variable.rows))
        for pieces in grouped(job, counts, self.chunk):
            yield job.bucket(pieces, job.ring)

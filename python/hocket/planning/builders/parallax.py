"""Parallax (Kim et al. 2019): dense gradients by all-reduce in groups; those of which a step touches few rows travel as rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hocket.artefacts.plan import Bucket
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import CHUNKS, Count
from hocket.planning.job import Job


class Parallax(Builder):
    """Rows where few are touched, and rings of `chunk` other variables in the model's order."""

    chunk: Count = 128
    tries: ClassVar[Tries] = {"chunk": CHUNKS}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield a bucket for each group, and one for each variable that travels as rows."""
        whole = [each for each in job.variables if not job.few_rows(each)]
        for group in job.groups(whole, count=self.chunk):
            yield job.bucket(group, job.ring)
        for variable in job.variables:
            if job.few_rows(variable):
                yield job.bucket(variable, job.rows(variable))

"""Large variables in few bits, all others as they are: for networks that are slow for the model, under `loss=any`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from hocket.artefacts.plan import Bucket, Traced
from hocket.planning.builder import Builder, Tries
from hocket.planning.builders.shards import Size
from hocket.planning.job import Job

ROUTES = {
    "int8": Traced(policy="double_squeeze", parameters={"bits": 8}),
    "int4": Traced(policy="double_squeeze", parameters={"bits": 4}),
    "top_k": Traced(policy="top_k", parameters={"share": 0.01}),
}
"""Policies that keep for the next step what they leave out, those that leave out less first."""


class Coded(Builder):
    """Variables of `large_bytes` or more by a codec, in buckets of `fused_bytes`; rings of the others, and rows where few are
    touched."""

    codec: Literal["int8", "int4", "top_k"] = "int8"
    fused_bytes: Size = 4 << 20
    large_bytes: Size = 16 << 10
    tries: ClassVar[Tries] = {"fused_bytes": (1 << 20, 4 << 20, 16 << 20)}

    def build(self, job: Job) -> Iterable[Bucket]:
        """Yield a bucket for each group, and one for each variable that travels as rows."""
        whole = [each for each in job.dense if not job.few_rows(each)]
        large = {each.name for each in whole if each.dtype == "f32" and each.bytes >= self.large_bytes}
        for group in job.groups(
            job.backward(whole), size_bytes=self.fused_bytes, apart=lambda each: each.name in large
        ):
            yield job.bucket(group, ROUTES[self.codec] if group[0].name in large else job.ring)
        for variable in job.dense:
            if variable not in whole:
                yield job.bucket(variable, job.rows(variable))

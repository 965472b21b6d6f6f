"""What the engines of a job put on the wire is what the cost model thinks that a plan sends, pair by pair, to the byte."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.planning.compile import programs
from hocket.planning.routes import name
from hocket.planning.traffic import sent
from hocket.reference.ops import STORED
from tests.support.engines import Job
from tests.support.random_plans import random_plan

WORLD = 3
GRADIENTS = [Gradient("a", (700,), "f32"), Gradient("b", (33,), "f64"), Gradient("c", (64, 5), "f32")]


@pytest.fixture(scope="module")
def job():
    with Job(["a", "b", "c"]) as job:
        yield job


@pytest.mark.parametrize("seed", range(25))
def test_predicted_bytes_are_sent(job: Job, seed: int) -> None:
    """Broken: a plan would be chosen by other traffic than it makes."""
    plan = random_plan(random.Random(seed), GRADIENTS, WORLD, traced=False)  # noqa: S311
    for bucket, program in zip(plan.buckets, programs(plan), strict=True):
        if name(bucket.route) == "in_place":
            continue
        before = [engine.bytes_sent() for engine in job.engines]
        inputs = np.random.default_rng(seed).standard_normal((WORLD, bucket.elements))
        buffers = [[row.astype(STORED[bucket.dtype])] for row in inputs]
        job.run(program, buffers)
        counted = sent(bucket)
        for source, engine in enumerate(job.engines):
            for destination, total in enumerate(engine.bytes_sent()):
                elements = counted.get((source, destination), 0)
                moved = total - before[source][destination]
                assert moved == elements * ITEM_BYTES[bucket.dtype], (bucket.route, source, destination)
        np.testing.assert_allclose(buffers[0][0], inputs.mean(axis=0), rtol=1e-5, atol=1e-5)

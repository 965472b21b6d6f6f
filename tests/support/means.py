"""Runs a plan's buckets on the reference executor, and requires the mean of all ranks' gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hocket import reference
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.reference.ops import STORED
from hocket.training.memory.arenas import arenas_of, arranged
from hocket.training.memory.buckets import of_plan


def assert_means(plan: Plan, gradients: Sequence[Gradient], seed: int) -> None:
    """As a session runs them: buckets that share a gradient share memory. All ranks end with the same bits."""
    named = {each.name: each for each in gradients}
    plan = arranged(plan, named)
    compiled = of_plan(plan, named)
    draw = np.random.default_rng(seed)
    for arena in arenas_of([bucket.parts for bucket in plan.buckets], named):
        elements = sum(each.elements for each in arena.gradients)
        inputs = draw.standard_normal((plan.world, elements)).astype(STORED[arena.gradients[0].dtype])
        memory = [row.copy() for row in inputs]
        for number in arena.numbers:
            runs = arena.runs(plan.buckets[number].parts) or ((0, 0),)
            bound = [[row[start:stop] for start, stop in runs] for row in memory]
            reference.run(compiled[number].program, bound)
        for row in memory:
            assert np.array_equal(row, memory[0]), "replicas differ"
        np.testing.assert_allclose(memory[0], inputs.mean(axis=0), rtol=1e-5, atol=1e-5)

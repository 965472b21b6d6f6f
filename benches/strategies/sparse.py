"""`sparse`: embeddings with few or many rows touched by a batch, wide or narrow. In virtual time, message by message.

The model is like NCF (He et al. 2017): two large embeddings, two middle ones and a small dense part. Contenders are the planner's
plan with the large embeddings, the middle ones, both or neither as rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from benches.row import Row
from benches.strategies.cases import CLUSTERS
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Gathered, Plan
from hocket.artefacts.profile import Profile
from hocket.planning.buckets import buckets
from hocket.planning.rows import rows_bucket
from hocket.planning.search import considered
from hocket.tools.bench.layered import layered
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation import shortlist
from hocket.tools.simulation.fidelity import predict

LARGE, MIDDLE = 100_000, 10_000
"""Rows of large and of middle embeddings."""
EMBEDDINGS = {"large 0": LARGE, "large 1": LARGE, "middle 0": MIDDLE, "middle 1": MIDDLE}
HIDDEN = 128
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5)
"""Fractions of an embedding's rows that each rank touches."""
WIDTHS = (8, 32, 64, 256)
FORWARD_S, BACKWARD_S = 0.002, 0.004
CLUSTER = CLUSTERS["star"]
LOST = 1.05
"""Largest ratio to the best contender's step of a plan with the wrong embeddings as rows."""
FEW = 0.01
NAME = "sparse"


def measured() -> Iterator[Row]:
    """Rows of every share and width."""
    points = list(itertools.product(SHARES, WIDTHS))
    right, lost = 0, 1.0
    for share, width in points:
        profile = model(share, width)
        found = considered(CLUSTER, profile, len(CLUSTER.hosts))
        plan = shortlist.chosen(found, CLUSTER, profile)
        own_s = _step_s(plan, profile)
        others = list(contenders(plan, profile))
        others_s = [_step_s(each, profile) for each in others]
        best_s, best = min(zip(others_s, others, strict=True), key=lambda each: each[0])
        if as_rows(plan) == as_rows(best) or own_s <= best_s:
            right += 1
        else:
            lost = max(lost, own_s / best_s)
        if share == FEW:
            parallax_s = _step_s(dict(found.built)["parallax"], profile)
            for name, step_s, target in (
                ("Parallax's builder", parallax_s, 1.3),
                ("dense gradients", others_s[0], 3.0),
            ):
                yield Row(
                    name=NAME,
                    what=f"{share:.0%} of rows, width {width}: step with {name} over the plan's",
                    value=step_s / own_s,
                    target=target,
                    least=True,
                    unit=TIMES,
                )
    yield Row(
        name=NAME,
        what=f"points of {len(points)} at which the plan sends the same embeddings as rows as the best contender, or is faster",
        value=100 * right / len(points),
        target=90,
        least=True,
        unit="%",
    )
    yield Row(
        name=NAME,
        what="at the others, the plan's step over the best contender's, worst",
        value=lost,
        target=LOST,
        unit=TIMES,
    )


def as_rows(plan: Plan) -> set[str]:
    return {
        name for bucket in plan.buckets if isinstance(bucket.route, Gathered) for name in bucket.variables
    }


def model(share: float, width: int) -> Profile:
    """Profile like a profiler's: gradients are dense, and a step touches a fraction of each embedding's rows."""
    dense = [("dense.0", (2 * width, HIDDEN)), ("dense.1", (HIDDEN, HIDDEN)), ("dense.2", (HIDDEN, 1))]
    layers = [(name, (rows, width)) for name, rows in EMBEDDINGS.items()] + dense
    profile = layered("like NCF", layers, forward_s=FORWARD_S, backward_s=BACKWARD_S)
    gradients = (
        msgspec.structs.replace(each, touched=max(1, round(share * each.rows)))
        if each.name in EMBEDDINGS
        else each
        for each in profile.gradients
    )
    return msgspec.structs.replace(profile, gradients=tuple(gradients))


def contenders(plan: Plan, profile: Profile) -> Iterator[Plan]:
    """Plans with rows for neither, for the middle, for the large embeddings, for both."""
    known = {each.name: Gradient(each.name, each.shape, each.dtype) for each in profile.gradients}
    world = len(CLUSTER.hosts)
    for kinds in ((), ("middle",), ("large",), ("middle", "large")):
        kept = [each for each in plan.buckets if not set(each.variables) & set(EMBEDDINGS)]
        for name in EMBEDDINGS:
            if name.startswith(kinds):
                kept.append(rows_bucket(known[name], range(world), len(kept)))
            else:
                dense = buckets([[known[name]]], AllReduce(algorithm="ring"), range(world))
                kept += (msgspec.structs.replace(each, priority=len(kept)) for each in dense)
        yield msgspec.structs.replace(plan, buckets=tuple(kept))


def _step_s(plan: Plan, profile: Profile) -> float:
    return predict(plan, CLUSTER, profile, fidelity="flow").step_s

"""`paper-clusters`: the clusters of AutoDist's table 1 with seven models, in the closed form.

The jobs' traces are not public: parameters come from the models (`shapes.py`), computation from the forward's operations on the
table's GPUs at a fraction of their peak, backward takes twice as long, and gradients become ready evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from benches.row import Row
from benches.strategies.shapes import MODELS
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT
from hocket.planning.built import built as built_by
from hocket.planning.question import question_of
from hocket.planning.search import EVALUATIONS
from hocket.tools.bench.layered import layered
from hocket.tools.report.quantity import TIMES

GIGABIT = 1e9
PER_FLOW_BIT_PER_S = 10 * GIGABIT
"""Rate of a flow between two hosts on AWS, from the table."""
WITHIN_BIT_PER_S = 80 * GIGABIT
"""Rate between GPUs of a host: PCIe 3.0 with 16 lanes, two thirds of which are payload."""
EFFICIENCY = 0.4
"""Fraction of a GPU's peak reached in training."""

TITAN_X, M60, T4 = 6.7e12, 4.8e12, 8.1e12
"""Peak operations per second of f32, per GPU."""


def _cluster(*kinds: tuple[int, int, float], per_flow: bool = True) -> Cluster:
    """Make a cluster. `kinds`: number of hosts, their GPUs, and their rate."""
    each = [(gpus, rate) for count, gpus, rate in kinds for _ in range(count)]
    limit = PER_FLOW_BIT_PER_S if per_flow else math.inf
    rates = tuple(
        tuple(WITHIN_BIT_PER_S if i == j else min(limit, out, into) for j, (_, into) in enumerate(each))
        for i, (_, out) in enumerate(each)
    )
    return Cluster(
        hosts=tuple(
            Host(name=f"h{at}", slots=gpus, bandwidth_bit_per_s=rate) for at, (gpus, rate) in enumerate(each)
        ),
        bandwidth_bit_per_s=rates,
    )


_G3, _G4 = (4, 25 * GIGABIT), (4, 50 * GIGABIT)

CLUSTERS: dict[str, tuple[Cluster, float]] = {
    "A1": (_cluster((16, 1, 40 * GIGABIT), per_flow=False), TITAN_X),
    "A2": (_cluster((11, 1, 40 * GIGABIT), per_flow=False), TITAN_X),
    "B1": (_cluster((2, *_G3)), M60),
    "B2": (_cluster((3, *_G3)), M60),
    "B3": (_cluster((4, *_G3)), M60),
    "B4": (_cluster((1, *_G4)), T4),
    "B5": (_cluster((2, *_G4)), T4),
    "B6": (_cluster((3, *_G4)), T4),
    "B7": (_cluster((4, *_G4)), T4),
    "B8": (_cluster((8, *_G4)), T4),
    "B9": (_cluster((1, 1, 10 * GIGABIT), (1, *_G3)), M60),
    "B10": (_cluster((1, *_G3), (1, *_G4)), M60),
    "B11": (_cluster((2, *_G3), (2, *_G4)), M60),
    "B12": (_cluster((1, 1, 25 * GIGABIT), (1, *_G4)), T4),
}
"""Cluster and peak of its slowest GPU, by the table's name."""

FORWARD: dict[str, float] = {
    "BERT-large": 8 * 2 * 302e6 * 128,
    "DenseNet121": 32 * 2 * 2.87e9,
    "InceptionV3": 32 * 2 * 5.7e9,
    "LM1B": 128 * 20 * 2 * (9.4e6 + 8192 * 512),
    "NCF": 8192 * 2 * 0.66e6,
    "ResNet101": 32 * 2 * 7.8e9,
    "VGG16": 32 * 2 * 15.5e9,
}
"""Operations for a GPU's batch: 32 images; 8 sequences of 128 words; 128 sequences of 20 words with 8192 sampled; 8192 ratings."""

TOUCHED: dict[str, int] = {"LM1B": 128 * 20 + 8192}
"""Largest number of rows of words that a batch touches."""
ROWS = 100_000
"""Rows above which a parameter counts as an embedding of words."""

NEVER_BELOW, BETTER = 1.0, 1.2
"""Least ratio of the best builder's step to the plan's: in each case, and as geometric mean."""
LEFT = 1.02
"""Ratio of the best builder's step to the bound from which an improvement is possible."""


def measured() -> Iterator[Row]:
    """Ratio of the best builder's step to the plan's, and the prediction above the bound."""
    ratios: list[float] = []
    allowed: list[float] = []
    for cluster, (network, peak) in CLUSTERS.items():
        for model in MODELS:
            made_for = profile(model, peak)
            world = sum(host.slots for host in network.hosts)
            question = question_of(network, made_for, world, EXACT, None)
            # Allow the plan everything that builders may use.
            question = replace(question, admitted=question.admitted | {"owned", "direct"})
            best, built = min(built_by(question), key=lambda each: each[1].predicted_step_s)
            solved = question.solved(EVALUATIONS)
            plan = min(solved.plan(), built, key=lambda each: round(each.predicted_step_s, 6))
            # Rounded to a microsecond: of equally fast plans, the simplest is taken.
            ratios.append(round(built.predicted_step_s, 6) / round(plan.predicted_step_s, 6))
            where = f"{cluster}, {model}"
            yield Row(
                name=where,
                what=f"step of the best builder ({best}) over that of {plan.label}",
                value=ratios[-1],
                target=NEVER_BELOW,
                least=True,
                unit=TIMES,
            )
            # On one host, builders have owners and the search has none.
            bound_s = min(solved.solution.bound_s, plan.predicted_step_s)
            gap = plan.predicted_step_s / bound_s - 1
            allowed.append(built.predicted_step_s / bound_s)
            yield Row(name=where, what="prediction above the bound", value=100 * gap, unit="%")
    yield Row(
        name="paper-clusters",
        what="geometric mean of the best builder's step over the bound",
        value=geometric_mean(allowed),
        unit=TIMES,
    )
    yield from _where_it_matters(allowed, ratios)
    yield Row(
        name="paper-clusters",
        what="geometric mean of the best builder's step over the plan's",
        value=geometric_mean(ratios),
        target=BETTER,
        least=True,
        unit=TIMES,
    )


def _where_it_matters(allowed: Sequence[float], ratios: Sequence[float]) -> Iterator[Row]:
    """Possible and achieved improvements in the cases in which communication is not hidden."""
    each = [(most, ratio) for most, ratio in zip(allowed, ratios, strict=True) if most >= LEFT]
    where = f"the {len(each)} of {len(allowed)} cases in which the best builder takes {LEFT} times the bound"
    yield Row(
        name="paper-clusters",
        what=f"{where}: geometric mean over the bound",
        value=geometric_mean([most for most, _ in each]),
        unit=TIMES,
    )
    yield Row(
        name="paper-clusters",
        what=f"{where}: geometric mean over the plan's",
        value=geometric_mean([ratio for _, ratio in each]),
        unit=TIMES,
    )


def profile(model: str, peak: float) -> Profile:
    forward_s = FORWARD[model] / (EFFICIENCY * peak)
    dense = layered(model, MODELS[model](), forward_s=forward_s, backward_s=2 * forward_s)
    touched = TOUCHED.get(model)
    return dense if touched is None else _with_rows(dense, touched)


def _with_rows(dense: Profile, touched: int) -> Profile:
    """Mark parameters with many rows as having a gradient for `touched` rows in a step."""
    return msgspec.structs.replace(
        dense,
        gradients=tuple(
            msgspec.structs.replace(each, sparse=len(each.shape) > 1, touched=touched)
            if each.shape[0] > ROWS
            else each
            for each in dense.gradients
        ),
    )


def geometric_mean(ratios: Sequence[float]) -> float:
    """Geometric mean of ratios above 0.

    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    return math.exp(sum(map(math.log, ratios)) / len(ratios))

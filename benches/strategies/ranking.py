"""`ranking`, `ranking-simulated`, `ranking-network`: do predictions put random plans in the right order?

Each cluster is held out: corrections were learned on the others, or from 20 trials on the cluster itself, which are left out.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence

from benches.row import Row
from benches.spearman import spearman
from benches.strategies.sampled import Measure, Sample, message_by_message, samples
from hocket.artefacts.belief import Belief
from hocket.planning.learned import Trial, learned

TRIALS = 20
SAME = 0.02
"""Relative difference below which steps are equally long: neither order is wrong."""
TOP = 4
"""Inverse of the fraction of plans near the top."""
DRAWS_SEED = 3

Scores = dict[str, tuple[float, float, bool, str]]
"""Value, target, whether the target is a minimum, and unit, by subject."""


def predictions(measure: Measure) -> Iterator[Row]:
    """Rows of the closed form unchanged, with weights learned on the other clusters, and after trials."""
    found = samples(measure)
    for sample in found:
        yield from _rows(sample.name, _errors(sample) | _orders(sample, predicted(sample)))
        yield from _rows(
            f"{sample.name}, learned elsewhere",
            {"pairs in order": _pairs(sample, after(sample, found), 0.92)},
        )
        kept, corrected = after_trials(sample)
        yield from _rows(
            f"{sample.name}, after {TRIALS} trials", {"pairs in order": _pairs(kept, corrected, 0.95)}
        )


def contender() -> Iterator[Row]:
    """Rows of AutoDist's ranking network, trained on the other clusters, beside the closed form."""
    from benches.strategies.network import scores  # noqa: PLC0415  # torch

    found = samples(message_by_message)
    better = 0
    for sample in found:
        network = scores([each for each in found if each is not sample], sample)
        theirs, ours = pairwise(network, sample.steps_s), pairwise(predicted(sample), sample.steps_s)
        better += theirs > ours
        yield Row(name=sample.name, what="pairs in order, ranking network", value=100 * theirs, unit="%")
        yield Row(name=sample.name, what="pairs in order, closed form", value=100 * ours, unit="%")
    yield Row(name="ranking-network", what="clusters on which the network is better", value=better)


def predicted(sample: Sample) -> list[float]:
    return [sample.question.predicted(plan).step_s for plan in sample.plans]


def after(sample: Sample, others: Sequence[Sample]) -> list[float]:
    """Steps by the closed form with the mean of the weights that were learned on other clusters."""
    taught = [learned(each.question, _trials(each)).belief.weights for each in others if each is not sample]
    weights = {
        name: (
            statistics.mean(each[name][0] for each in taught),
            statistics.mean(each[name][1] for each in taught),
        )
        for name in taught[0]
    }
    known = learned(sample.question, (), Belief(weights=weights))
    return [float(step_s) for step_s in known.steps_s(sample.plans, known.draws(1, DRAWS_SEED))[0]]


def after_trials(sample: Sample) -> tuple[Sample, list[float]]:
    """Plans except TRIALS random ones, and their steps as corrected by these trials."""
    order = list(range(len(sample.plans)))
    random.Random(DRAWS_SEED).shuffle(order)  # noqa: S311  # of trials
    known = learned(sample.question, _trials(_part(sample, order[:TRIALS])))
    kept = _part(sample, order[TRIALS:])
    return kept, [float(step_s) for step_s in known.steps_s(kept.plans, known.draws(1, DRAWS_SEED))[0]]


def pairwise(expected: Sequence[float], steps_s: Sequence[float]) -> float:
    """Fraction of pairs in the right order, without equally long ones.

    >>> pairwise([1, 2, 3], [1.0, 3.0, 2.0])
    0.6666666666666666
    """
    right = pairs = 0
    for one in range(len(steps_s)):
        for other in range(one):
            if abs(steps_s[one] - steps_s[other]) <= SAME * min(steps_s[one], steps_s[other]):
                continue
            pairs += 1
            right += (expected[one] < expected[other]) == (steps_s[one] < steps_s[other])
    return right / pairs if pairs else 1.0


def _errors(sample: Sample) -> Scores:
    errors = [
        abs(expected / step_s - 1) for expected, step_s in zip(predicted(sample), sample.steps_s, strict=True)
    ]
    return {
        "median error": (100 * statistics.median(errors), 6, False, "%"),
        "worst error": (100 * max(errors), 20, False, "%"),
    }


def _orders(sample: Sample, expected: Sequence[float]) -> Scores:
    top = sorted(range(len(sample.plans)), key=sample.steps_s.__getitem__)[: len(sample.plans) // TOP]
    chosen = min(range(len(sample.plans)), key=expected.__getitem__)
    return {
        "Spearman": (spearman(list(expected), sample.steps_s), 0.95, True, ""),
        "pairs in order": _pairs(sample, expected, 0.92),
        "pairs in order, fastest quarter": _pairs(_part(sample, top), [expected[at] for at in top], 0.85),
        "regret": (100 * (sample.steps_s[chosen] / min(sample.steps_s) - 1), 5, False, "%"),
    }


def _pairs(sample: Sample, expected: Sequence[float], target: float) -> tuple[float, float, bool, str]:
    return 100 * pairwise(expected, sample.steps_s), 100 * target, True, "%"


def _part(sample: Sample, which: Sequence[int]) -> Sample:
    return Sample(
        sample.name,
        sample.question,
        [sample.plans[at] for at in which],
        [sample.steps_s[at] for at in which],
        [sample.errors_s[at] for at in which],
    )


def _trials(sample: Sample) -> list[Trial]:
    each = zip(sample.plans, sample.steps_s, sample.errors_s, strict=True)
    return [Trial(plan, step_s, error_s) for plan, step_s, error_s in each]


def _rows(name: str, scores: Scores) -> Iterator[Row]:
    for what, (value, target, least, unit) in scores.items():
        yield Row(name=name, what=what, value=value, target=target, least=least, unit=unit)

"""Fall of a loss with merged batches or late gradients: the Gaussian walk with rebound (Yin et al. 2017), as in DeFT.

A step of a batch of B samples changes the loss by -η·Δ, Δ normal with mean μ and variance σ²/B, and rebounds from the floor.
μ is the squared norm of the true gradient g, σ² = gᵀΣg with the covariance Σ of one sample's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from hocket.errors import UsageError

Rule = Literal["linear", "sqrt", "one"]
"""Rule for the factor of the learning rate with k merged iterations: k, its root, or 1."""


class Walk(NamedTuple):
    """State and motion of the loss; `rate` is the learning rate, `batch` the samples of one iteration on all ranks."""

    loss: float
    floor: float
    rate: float
    drift: float
    noise: float
    batch: float


def rate_factor(rule: Rule, merged: int) -> float:
    """Factor of the learning rate for a step of `merged` iterations.

    >>> rate_factor("linear", 4), rate_factor("sqrt", 4), rate_factor("one", 4)
    (4.0, 2.0, 1.0)
    """
    return {"linear": float(merged), "sqrt": math.sqrt(merged), "one": 1.0}[rule]


def expected(loss: float, floor: float, move: float, spread: float) -> float:
    """Mean of the loss after one step: floor + |loss - floor - D|, D normal with mean `move` and deviation `spread`.

    A folded normal (Leone, Nelson and Nottingham 1961). DeFT prints its mean with the loss's change where `move` must stand.

    >>> expected(3.0, 0.0, 1.0, 0.0)
    2.0
    """
    left = loss - floor - move
    if spread <= 0:
        return floor + abs(left)
    share = left / spread
    inside = math.erf(share / math.sqrt(2))
    return floor + left * inside + spread * math.sqrt(2 / math.pi) * math.exp(-share * share / 2)


def after(walk: Walk, merges: Sequence[int], rule: Rule) -> float:
    """The expected loss after one step for each of `merges` (numbers of merged iterations), at a constant drift."""
    loss = walk.loss
    for merged in merges:
        rate = walk.rate * rate_factor(rule, merged)
        spread = rate * walk.noise / math.sqrt(walk.batch * merged)
        loss = expected(loss, walk.floor, rate * walk.drift, spread)
    return loss


def paper_ratio(walk: Walk, merges: Sequence[int], rule: Rule) -> float:
    """DeFT's criterion: the expected loss of synchronous training over that of merged batches, after as many iterations.

    The ratio is always near 1 if the loss hardly moves in a period; `progress` is not.
    """
    merged = after(walk, merges, rule)
    return after(walk, [1] * sum(merges), rule) / merged if merged else math.inf


def progress(
    walk: Walk, merges: Sequence[int], rule: Rule, *, delay: int, iterations: int = 100
) -> float | None:
    """Fraction of synchronous training's progress in some iterations that a schedule makes.

    `merges` is repeated; a step moves by the gradient of `delay` updates before, and the gradient falls with the loss above its
    floor, as if the Polyak-Łojasiewicz inequality were tight. 1: nothing is lost; negative: the loss rises. None: synchronous
    training itself makes no progress, so there is nothing to compare with.
    """
    periods = math.ceil(max(iterations, sum(merges)) / sum(merges))
    steps = list(merges) * periods
    synchronous = _falling(walk, [1] * sum(steps), rule, 0)
    gained = walk.loss - synchronous
    if not gained > 0:
        return None
    return (walk.loss - _falling(walk, steps, rule, delay)) / gained


def _falling(walk: Walk, steps: Sequence[int], rule: Rule, delay: int) -> float:
    """The expected loss at the end, with a drift proportional to the loss above its floor."""
    per_loss = walk.drift / max(walk.loss - walk.floor, 1e-300)
    # The distance from the floor may change its sign in a step: the walk rebounds, late gradients do not follow.
    known = [walk.loss] * (delay + 1)
    for merged in steps:
        rate = walk.rate * rate_factor(rule, merged)
        spread = rate * walk.noise / math.sqrt(walk.batch * merged)
        move = rate * per_loss * (known[0] - walk.floor)
        known = [*known[1:], expected(known[-1], walk.floor, move, spread)]
        if not known[-1] < 1e3 * (abs(walk.loss) + 1):
            return math.inf
    return known[-1]


def fitted_floor(losses: Sequence[float]) -> float | None:
    """Limit of a curve of losses that falls geometrically (Aitken's extrapolation over means of thirds); None if it does not.

    >>> round(fitted_floor([1 + 0.9**step for step in range(60)]), 3)
    1.0
    """
    third = len(losses) // 3
    if third == 0:
        return None
    first, second, last = (sum(losses[at * third : (at + 1) * third]) / third for at in range(3))
    bend = first - 2 * second + last
    if bend <= 0 or not first > second > last:
        return None
    return (first * last - second * second) / bend


class Noise(NamedTuple):
    """Squared norm of the true gradient g, and for one sample, the root of gᵀΣg and tr(Σ)."""

    drift: float
    noise: float
    trace: float

    @property
    def scale(self) -> float | None:
        """Number of samples whose mean has as much noise as gradient; None: noise outweighs the gradient too far to tell."""
        return self.trace / self.drift if self.drift > 0 else None


def noise_of(
    *,
    norm2_by_rank: Sequence[float],
    norm2_of_sum: float,
    dots: Sequence[float],
    batch: float,
    world: int | None = None,
) -> Noise:
    """Estimate noise from W ranks' local gradients: squared norms, that of their sum, and the product of each with the mean.

    All are sums over buckets. ‖g‖² = (‖Σg_w‖² - Σ‖g_w‖²) / (W(W-1)) has no bias; it may be negative where noise outweighs the
    gradient. `batch` is over all ranks: a local gradient is the mean of batch / W samples, so σ² = batch / W · Var_w(ḡ·g_w), and
    tr(Σ) = batch / W · (mean ‖g_w‖² - ‖g‖²).
    `world`: W, if only some of the ranks are given, as a sample of all.

    Raises UsageError for fewer than two ranks.
    """
    given = len(norm2_by_rank)
    world = given if world is None else world
    if given < 2 or len(dots) != given:
        raise UsageError(f"guard: gradients of {given} ranks: noise is the difference between at least two")
    drift = (norm2_of_sum - world / given * sum(norm2_by_rank)) / (world * (world - 1))
    mean = sum(dots) / given
    variance = sum((dot - mean) ** 2 for dot in dots) / (given - 1)
    trace = batch / world * max(sum(norm2_by_rank) / given - drift, 0.0)
    return Noise(drift, math.sqrt(batch / world * variance), trace)

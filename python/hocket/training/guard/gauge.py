"""Gauge of how a rank's model learns: norms and products of its first gradients, losses that its script logs, a curvature.

All ranks' reports together are a `Learning`, by which the guard judges merged and late updates. In the first synchronous iterations
of a session that may use such updates, gradients are copied when they are complete and before they leave.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import fmean

import msgspec
import numpy as np
from msgspec import Struct

from hocket.artefacts.learning import Learning
from hocket.planning.walk import Noise, noise_of
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.values import elements

GAUGED = 4
"""Number of iterations whose local gradients are copied."""

LOSSES_MAX = 32
"""Number of logged losses that are kept, the last ones."""


class Norms(Struct, frozen=True):
    """Numbers of one iteration: squared norm of this rank's gradient, its product with the mean of all ranks', the mean's own
    norm."""

    own: float
    product: float
    mean: float


class Report(Struct, frozen=True, kw_only=True):
    """Report of one rank. `optimizer`: facts about its optimizer, without measurements; None: unknown."""

    norms: tuple[Norms, ...] = ()
    losses: tuple[float, ...] = ()
    curvature: float | None = None
    optimizer: Learning | None = None


class Gauge:
    def __init__(self) -> None:
        self._own: list[np.ndarray] = []
        self._norms: list[Norms] = []
        self._losses: deque[float] = deque(maxlen=LOSSES_MAX)
        self._curvature: float | None = None

    @property
    def wants(self) -> bool:
        """True if gradients of another iteration are to be copied."""
        return len(self._norms) < GAUGED

    def observe(self, *, loss: float | None = None, curvature: float | None = None) -> None:
        """Keep a loss or curvature that the script reports."""
        if loss is not None and math.isfinite(loss):
            self._losses.append(loss)
        if curvature is not None:
            self._curvature = curvature

    def made(self, buckets: Sequence[LoadedBucket]) -> None:
        """Copy this rank's gradients, all of which are there and none of which has left."""
        self._own = [elements(bucket).copy() for bucket in buckets]

    def reduced(self, buckets: Sequence[LoadedBucket], scale: float = 1.0) -> None:
        """Take the means of the copied gradients; non-finite numbers are left out, as they are on all ranks. `scale`: factor that
        all gradients have."""
        pairs = [(own, elements(bucket)) for own, bucket in zip(self._own, buckets, strict=True)]
        self._own = []
        norms = Norms(
            own=math.fsum(float(np.dot(own, own)) for own, _ in pairs) / scale**2,
            product=math.fsum(float(np.dot(own, mean)) for own, mean in pairs) / scale**2,
            mean=math.fsum(float(np.dot(mean, mean)) for _, mean in pairs) / scale**2,
        )
        if math.isfinite(norms.mean) and math.isfinite(norms.own):
            self._norms.append(norms)

    def forget(self) -> None:
        """Discard the copies, as their iteration was no plain one."""
        self._own = []

    def resume(self, report: Report) -> None:
        """Go on from a report of before a restart."""
        self._norms, self._curvature = list(report.norms), report.curvature
        self._losses.clear()
        self._losses.extend(report.losses)

    def report(self, optimizer: Learning | None) -> Report:
        return Report(
            norms=tuple(self._norms),
            losses=tuple(self._losses),
            curvature=self._curvature,
            optimizer=optimizer,
        )


def learning_of(reports: Sequence[Report], world: int) -> Learning | None:
    """Return the combined observations of some of `world` ranks; None if the optimizer is unknown.

    The largest curvature of all ranks counts: that of their mean loss is no larger.
    """
    optimizer = reports[0].optimizer
    if optimizer is None:
        return None
    iterations = min(len(each.norms) for each in reports)
    curvatures = [each.curvature for each in reports if each.curvature is not None]
    logged = [each.losses for each in reports if each.losses]
    count = min((len(each) for each in logged), default=0)
    noise = _noise([each.norms[:iterations] for each in reports], world) if len(reports) > 1 else None
    return msgspec.structs.replace(
        optimizer,
        ranks=world,
        drift=None if noise is None else noise.drift,
        noise=None if noise is None else noise.noise,
        noise_scale=None if noise is None else noise.scale,
        losses=tuple(fmean(each[at - count] for each in logged) for at in range(count)),
        curvature=max(curvatures, default=None),
    )


def _noise(norms: Sequence[Sequence[Norms]], world: int) -> Noise | None:
    """Return the mean over iterations, of ranks that stand for all."""
    found = [
        noise_of(
            norm2_by_rank=[each.own for each in of_ranks],
            norm2_of_sum=world**2 * of_ranks[0].mean,
            dots=[each.product for each in of_ranks],
            # The unit is a rank's contribution, as `Learning.ranks` counts them.
            batch=world,
            world=world,
        )
        for of_ranks in zip(*norms, strict=True)
    ]
    if not found:
        return None
    return Noise(
        fmean(each.drift for each in found),
        math.sqrt(fmean(each.noise**2 for each in found)),
        fmean(each.trace for each in found),
    )

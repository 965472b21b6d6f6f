"""Shares of ranks in a batch, so that ranks of unequal speed are done with their part of it at the same time. Numbers in, numbers
out."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from hocket.artefacts.profile import Profile
from hocket.planning.reason import seconds

UNEVEN = 1.1
"""Ratio of the longest to the mean computation of ranks from which shares are worth a sentence."""


class Suggested(Struct, frozen=True, kw_only=True):
    """Shares by rank, the fastest one's 1; sizes of batches, if the present ones are known; and how long the last rank computes in
    a step: with batches of one size, and with shares, if that time is in proportion to a batch."""

    shares: tuple[float, ...]
    batches: tuple[int, ...]
    even_s: float
    shared_s: float

    def said(self, exposed_s: float = 0.0) -> str:
        """Return a sentence on it. `exposed_s`: time of a step in which ranks wait for communication."""
        given = ", ".join(f"{share:g}" for share in self.shares)
        sizes = f", with batches of {', '.join(map(str, self.batches))} samples" if self.batches else ""
        return (
            f"Ranks are unequally fast: hk.batches(…, shares=[{given}]){sizes}, would make steps of "
            f"{seconds(self.shared_s + exposed_s)} instead of {seconds(self.even_s + exposed_s)}, as far as computation is in "
            "proportion to samples."
        )


def sizes(batch: int, shares: Sequence[float]) -> list[int]:
    """Return the number of samples of each rank, at least one, of `batch` for each on average: so that the largest number over its
    share is as small as whole samples allow.

    >>> sizes(32, [1, 1, 0.5, 0.25])
    [47, 47, 23, 11]
    """
    given = [1] * len(shares)
    # The rank that would be done first with one sample more gets the next one; of several the slowest, which has the fewest.
    waiting = [(2 / share, share, rank) for rank, share in enumerate(shares)]
    heapq.heapify(waiting)
    for _ in range((batch - 1) * len(shares)):
        _, share, rank = waiting[0]
        given[rank] += 1
        heapq.heapreplace(waiting, ((given[rank] + 1) / share, share, rank))
    return given


def suggested(computed_s: Sequence[float], batches: Sequence[int | None]) -> Suggested | None:
    """Return the shares for ranks that compute so long in a step with these batches; None: they are about equally fast."""
    if len(computed_s) < 2 or min(computed_s) <= 0 or max(computed_s) < UNEVEN * fmean(computed_s):
        return None
    known = [each for each in batches if each]
    own = known if len(known) == len(computed_s) else [1] * len(computed_s)
    speeds = [samples / time_s for samples, time_s in zip(own, computed_s, strict=True)]
    shares = tuple(float(f"{speed / max(speeds):.2g}") for speed in speeds)
    if len(known) < len(computed_s) or sum(own) % len(own):
        return Suggested(shares=shares, batches=(), even_s=max(computed_s), shared_s=sum(own) / sum(speeds))
    dealt = sizes(sum(own) // len(own), shares)
    shared_s = max(samples / speed for samples, speed in zip(dealt, speeds, strict=True))
    return Suggested(shares=shares, batches=tuple(dealt), even_s=max(computed_s), shared_s=shared_s)


def of_profile(profile: Profile) -> Suggested | None:
    """Return the shares for the ranks of a profile."""
    return suggested([each.step_s for each in profile.ranks], [each.batch for each in profile.ranks])

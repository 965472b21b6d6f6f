"""Judgement of ranks that step alone: from what every rank reports of an exchange, whether they drift apart or learn slower.

All ranks see the same reports, so all judge alike. Where scripts log a loss, it alone counts: a turn in which the loss grows
without end, or an anchor that keeps little of what ranks gain by themselves. Without, lengths count: how far ranks came
from the anchor, whether the anchor goes back by more than it came, and whether ranks' progress cancels out. No clock, no I/O.

Local SGD diverges where a rank's own data is steeper than all ranks' together, and stays away from the optimum where data is
unlike (Khaled et al., AISTATS 2020); how far the mean's length is below the ranks' tells how alike their progress is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hocket.artefacts.local import Sites

KEPT, RECENT = 30, 8
"""Numbers of exchanges that are remembered, and of those with whose losses a turn's are compared."""

SIGNIFICANT = 4.0
"""Standard errors by which losses must differ: normal noise passes that once in 30,000 exchanges."""

DOUBTFUL = 3.0
"""Standard errors that are enough while ranks try how many steps alone they bear: a mistake costs little then."""

SMALL = 0.02
"""Share of the first loss below which a gain or a rise of the loss says nothing."""

GREW = 1.0
"""Rise of the loss, over the largest with which a turn began lately, that is divergence: it doubles."""

WINDOWS, KEEPS = (4, 8), 0.75
"""Numbers of turns over which gains are compared, and the least share of what ranks gain alone that the anchor is to keep where
turns are bent; elsewhere of 1 over the number of ranks, which it keeps with any number where data has nothing in common."""

WHOLE_TURN = 8 / 7
"""Length of a turn over the distance of its begin to the middle of its last quarter."""

LOSSES_MIN = 4
"""Losses of a turn on a rank from which its begin and its end are told apart. Where ranks try how many steps alone they bear,
they begin with more."""

FEW, FEW_OF = 3, 8
"""Largest number of losses, and of so many one, that show the anchor: where data is unlike, ranks lose and gain back within some
steps what an exchange took."""

LENGTHENED = 16.0
"""Growth of the way that ranks make in a turn, at the same learning rate, over the least that is remembered, if no turn led as far:
norms grow by a factor of some in the first iterations of a training that goes well, and again where it learns something new."""

BACK = -1.0
"""Component of an anchor's step along the one before, over that one's length, which undoes it entirely."""

HALF = 0.5
"""Largest share of steps alone with which ranks that learn slower go on. Where less of their gains is kept, it is as little."""

CANCELLED, CANCELLED_FOR = 0.5, 3
"""Agreement, over that of ranks whose progress has nothing in common, below which ranks undo one another, and for how many
exchanges."""

GROWS_AFTER, GROWS_UNKNOWN = 2, 4
"""Numbers of exchanges after so many steps alone that ranks see before they make more: where losses show what the anchor keeps, and
where they do not."""

STRAIGHT = 0.5
"""Way in a turn, over its steps times the first of them, below which it is bent: steps late in the turn lead elsewhere. Only then
do ranks lose by the number of their steps: where data is unlike, they undo part of what others gain with any number."""

INFINITE = 2.0**127
"""What is as large as this, or NaN, is not finite. An f32 represents it exactly."""


class Report(NamedTuple):
    """Report of one rank of an exchange, before it: numbers that fit into f32.

    Attributes:
        moved: distance of the rank's parameters to the anchor.
        along: component of that along the last step of the anchor, in the direction of the loss's fall.
        step: length of the anchor's last step; 0: there was none.
        pace: length of the first step of the turn; 0: unknown.
        rate: learning rate, mean over the turn; 0: unknown.
        first, last: mean losses of the first few steps from the anchor, and of the last quarter of the turn.
        noise2, noise2_last: squared standard errors of these; `noise2` below 0: no losses were logged.
        weight: what the rank's progress counts by, if weights differ.
        step_s: mean time of its steps, if ranks step at their own pace; 0: unknown.
        late: 1: it was sent without the rank, which had not come in time.
    """

    moved: float
    along: float
    step: float
    pace: float
    rate: float
    first: float
    last: float
    noise2: float
    noise2_last: float = 0.0
    weight: float = 0.0
    step_s: float = 0.0
    late: float = 0.0


WORDS = len(Report._fields)

NOTHING = Report(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0)
"""Report of a rank of whose drift nothing is to be judged."""


class Verdict(NamedTuple):
    """Verdict on an exchange.

    Attributes:
        diverges: it is not to be taken; else, ranks learn slower than they could.
        why: the numbers.
        share: share of the steps alone of which ranks are to make at most as many from now on.
    """

    diverges: bool
    why: str
    share: float = 0.0


class Seen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exchange as all ranks know it: root of the mean square of `moved`, `along` over the step before (None: there was none),
    `moved` over as many first steps of the turn (`straight`; None: unknown), and means over ranks; `noise2` is None without losses.
    `farthest` is the longest way of any turn until then. `agreement` is known with the exchange after it."""

    steps: int
    moved: float
    along: float | None
    straight: float | None
    rate: float
    first: float
    last: float
    noise2: float | None
    noise2_last: float
    farthest: float
    agreement: float | None = None


class SavedFragment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exchanges of a fragment, by its first bucket, among these ranks."""

    fragment: int
    ranks: tuple[int, ...]
    seen: tuple[Seen, ...]


class SavedJudge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a `Judge`."""

    began: float | None
    fragments: tuple[SavedFragment, ...]


class Judge:
    """Judge of one schedule's exchanges. `began`: the loss with which they began, once one is known."""

    def __init__(self) -> None:
        self.began: float | None = None
        self._seen: dict[int, tuple[tuple[int, ...], list[Seen]]] = {}
        self._sites: Sites = ()

    def again(self, sites: Sites = ()) -> None:
        """Forget exchanges: those that follow are others. `sites`: ranks that step together; none: each by itself."""
        self.began, self._seen, self._sites = None, {}, sites

    def _apart(self, ranks: Sequence[int]) -> float:
        """Return the number of ranks that move apart from one another: ranks of a site are as one, which counts by their number."""
        shares = [len(site) / len(ranks) for site in self._sites]
        return 1 / math.fsum(share**2 for share in shares) if shares else len(ranks)

    def saved(self) -> SavedJudge:
        fragments = [
            SavedFragment(fragment=fragment, ranks=ranks, seen=tuple(seen))
            for fragment, (ranks, seen) in self._seen.items()
        ]
        return SavedJudge(began=self.began, fragments=tuple(fragments))

    def restore(self, saved: SavedJudge) -> None:
        self.began = saved.began
        self._seen = {each.fragment: (each.ranks, list(each.seen)) for each in saved.fragments}

    def see(
        self, fragment: int, steps: int, reports: Mapping[int, Report], *, tries: bool = False
    ) -> Verdict | None:
        """Take the reports of an exchange, by rank; return a verdict, if there is one. `tries`: ranks are to make more steps alone
        if there is none.

        What was seen of other ranks, or of turns of another length, is forgotten: it is no measure for these.
        """
        ranks = tuple(reports)
        before_ranks, seen = self._seen.get(fragment, (ranks, []))
        if before_ranks != ranks or (seen and seen[-1].steps != steps):
            seen = []
        self._seen[fragment] = ranks, seen
        now = seen_of(steps, reports)
        if seen:
            step = max(each.step for each in reports.values())
            seen[-1] = replace(seen[-1], agreement=agreement(step, seen[-1].moved))
        odd = [rank for rank, each in reports.items() if not each.moved < INFINITE]
        if odd:
            return Verdict(
                True, f"rank {odd[0]} came to parameters that are not finite in {steps} steps alone"
            )
        if now.noise2 is not None and self.began is None:
            self.began = now.first
        if now.noise2 is None or self.began is None:
            verdict = by_length(seen, now, self._apart(ranks))
        else:
            known = [each for each in seen if each.noise2 is not None]
            significant = DOUBTFUL if tries else SIGNIFICANT
            verdict = by_loss(known, now, self.began, self._apart(ranks), significant)
        if seen:
            now = replace(now, farthest=max(now.moved, _at_rate(seen[-1].farthest, seen[-1], now)))
        seen.append(now)
        del seen[:-KEPT]
        return verdict

    def keeps(self, fragment: int) -> bool:
        """Return whether the exchanges of a fragment that were seen speak for more steps alone, after one without a verdict: they
        keep what ranks gain, or there is nothing to keep."""
        ranks, seen = self._seen.get(fragment, ((), []))
        if len(seen) < GROWS_AFTER:
            return False
        *before, now = seen
        known = [each for each in before if each.noise2 is not None]
        if now.noise2 is None or self.began is None or not known:
            return len(seen) >= GROWS_UNKNOWN
        gains = gains_of(known[-WINDOWS[0] :], now, self.began, self._apart(ranks))
        if gains is None or gains.lacks <= 0:
            return True
        return len(seen) >= GROWS_UNKNOWN and not gains.gained and gains.lacks <= gains.lacks_error


def seen_of(steps: int, reports: Mapping[int, Report]) -> Seen:
    """Return what the reports of an exchange say together.

    >>> alone = Report(moved=3.0, along=-2.0, step=4.0, pace=0.6, rate=0.1, first=0.0, last=0.0, noise2=-1.0)
    >>> found = seen_of(10, {0: alone, 1: alone._replace(along=0.0)})
    >>> found.moved, found.along, found.straight, found.noise2
    (3.0, -0.25, 0.5, None)
    """
    all_of = reports.values()
    step = max(each.step for each in all_of)
    logged = all(each.noise2 >= 0 for each in all_of)
    moved, pace = (
        math.sqrt(fmean(each * each for each in lengths))
        for lengths in ([each.moved for each in all_of], [each.pace for each in all_of])
    )
    return Seen(
        steps=steps,
        moved=moved,
        along=fmean(each.along for each in all_of) / step if step > 0 else None,
        straight=moved / (steps * pace) if pace > 0 else None,
        rate=fmean(each.rate for each in all_of),
        first=fmean(each.first for each in all_of),
        last=fmean(each.last for each in all_of),
        noise2=fmean(each.noise2 for each in all_of) / len(all_of) if logged else None,
        noise2_last=fmean(each.noise2_last for each in all_of) / len(all_of),
        farthest=moved,
    )


def agreement(step: float, moved: float) -> float | None:
    """Return the squared length of a mean over the mean of squared lengths; None: nothing has moved.

    >>> agreement(3.0, 3.0), agreement(1.0, 2.0)
    (1.0, 0.25)
    """
    return (step / moved) ** 2 if moved > 0 else None


def by_loss(
    before: Sequence[Seen], now: Seen, began: float, ranks: float, significant: float = SIGNIFICANT
) -> Verdict | None:
    """Judge an exchange among so many ranks by logged losses. `before`: exchanges before it, of turns as long; `significant`:
    standard errors beyond which an anchor keeps too little."""
    error = math.sqrt(max(now.noise2 or 0.0, now.noise2_last))
    highest = max((each.first for each in before[-RECENT:]), default=now.first)
    limit = highest + max(GREW * abs(highest), SMALL * abs(began), SIGNIFICANT * error)
    if not now.last <= limit or not now.first <= limit:
        return Verdict(
            True,
            f"the loss came to {max(now.first, now.last):.4g} in {now.steps} steps alone, and was {highest:.4g} at most where "
            "turns began",
        )
    for count in WINDOWS:
        gains = gains_of(before[-count:], now, began, ranks)
        if gains is not None and gains.gained and gains.lacks > significant * gains.lacks_error:
            turns = "the last turn" if len(before) == 1 else f"the last {min(len(before), count)} turns"
            return Verdict(
                False,
                f"in {turns} of {now.steps} steps alone, the ranks' losses fell by {gains.own:.4g}, and exchanges kept "
                f"{gains.kept:.4g} of that",
                min(max(gains.kept / gains.own, 0.0), HALF),
            )
    return None


class Gains(NamedTuple):
    """Gains of ranks over some turns: the fall of their `own` losses, what the anchor `kept` of that, and what it `lacks` to the
    least that it is to keep, with its standard error. `gained`: their own fall is beyond noise."""

    own: float
    kept: float
    lacks: float
    lacks_error: float
    gained: bool


def gains_of(window: Sequence[Seen], now: Seen, began: float, ranks: float) -> Gains | None:
    """Return what so many ranks have gained in the turns of a window, each as long as that of `now`; None: there are none."""
    if not window:
        return None
    bends = [each.straight for each in window if each.straight is not None]
    bent = bool(bends) and max(bends) < STRAIGHT
    keeps = WHOLE_TURN * (KEEPS if bent else KEEPS / ranks)
    fell = math.fsum(each.first - each.last for each in window)
    kept = window[0].first - now.first
    begins2, ends2 = [each.noise2 or 0.0 for each in window], [each.noise2_last for each in window]
    fell_error = math.sqrt(math.fsum(begins2) + math.fsum(ends2))
    # The loss with which the window begins is in both, so that its noise counts by the difference.
    lacks_error = math.sqrt(
        (1 - keeps) ** 2 * begins2[0]
        + keeps**2 * (math.fsum(begins2[1:]) + math.fsum(ends2))
        + (now.noise2 or 0.0)
    )
    own = WHOLE_TURN * fell
    return Gains(
        own,
        kept,
        keeps * fell - kept,
        lacks_error,
        own > SMALL * abs(began) and fell > SIGNIFICANT * fell_error,
    )


def by_length(before: Sequence[Seen], now: Seen, ranks: float) -> Verdict | None:
    """Judge an exchange among so many ranks by the lengths of what they have moved. `before`: as in `by_loss`."""
    ways = [_at_rate(each.moved, each, now) for each in before if each.moved > 0]
    if ways and now.moved > max(LENGTHENED * min(ways), _at_rate(before[-1].farthest, before[-1], now)):
        return Verdict(
            True,
            f"ranks came {now.moved:.4g} away from the anchor in {now.steps} steps alone, and {min(ways):.4g} before",
        )
    last_two = [each.along for each in (*before[-1:], now)]
    if len(last_two) > 1 and all(each is not None and each <= BACK for each in last_two):
        times = " and ".join(f"{-each:.4g}" for each in last_two if each is not None)
        return Verdict(True, f"the anchor's last steps undo {times} times the step before each")
    last = [
        each for each in before[-CANCELLED_FOR:] if each.straight is not None and each.straight < STRAIGHT
    ]
    alike = [each.agreement for each in last if each.agreement is not None]
    if len(alike) == CANCELLED_FOR and ranks > 1 and max(alike) < CANCELLED / ranks:
        longest = max(each.straight or 0.0 for each in last)
        return Verdict(
            False,
            f"ranks undo one another: their progress agreed by {max(alike):.2g} at most in {len(alike)} exchanges, which is "
            f"{1 / ranks:.2g} where it has nothing in common, and {now.steps} steps alone led {longest:.2g} as far at most as so "
            "many like the first",
            HALF,
        )
    return None


def _at_rate(way: float, each: Seen, now: Seen) -> float:
    """Return the way of an earlier turn as it would have been at the learning rate of `now`."""
    return way * (now.rate / each.rate if each.rate > 0 and now.rate > 0 else 1.0)


class Departure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turn of some arenas that left, of so many steps; `reports` of all ranks, by rank, once they are counted."""

    arenas: tuple[int, ...]
    steps: int
    reports: tuple[Report, ...] = ()


class SavedDrift(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a `Drift` between two iterations. The anchor's last steps are not in it: no exchange undoes one of before a
    restart."""

    most: int | None
    grown: int | None
    discards: bool
    warned: bool
    pace: float
    judge: SavedJudge
    losses: tuple[float, ...]
    begins: bool | None
    rates: tuple[tuple[int, float], ...]
    departures: tuple[Departure, ...]


class Losses:
    """Losses that a rank's script logs in a turn. `begins`: the script logs a step's loss before that step ends, so that the first
    of a turn is the anchor's; None: not known yet."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.begins: bool | None = None

    def see(self, loss: float) -> None:
        """Take a loss. One that is not finite says nothing: a step that it made would leave parameters that are not."""
        if math.isfinite(loss):
            self.values.append(loss)

    def report(self, steps: int, late: int = 0) -> tuple[float, float, float, float]:
        """Return the mean losses of the first few steps from the anchor and of the last quarter of a turn of so many steps, and
        their squared standard errors, and forget all; the first error is below 0 where too few are known. `late`: steps after which
        the anchor is there.

        Unless the first turn of all had the loss of each of its steps, the first loss is left out: a script may log that of a step
        after the exchange that ends the step's turn.
        """
        values, self.values = self.values, []
        if self.begins is None and values:
            self.begins = len(values) == steps
        values = values[late if self.begins else late + 1 :]
        if len(values) < LOSSES_MIN:
            return 0.0, 0.0, -1.0, 0.0
        few, quarter = min(FEW, max(len(values) // FEW_OF, 1)), len(values) // 4
        # Differences of neighbours, so that a falling loss does not count as noise (von Neumann 1941), without those of the first
        # few, where it may fall by more than noise with each step.
        each2 = [(after - ago) ** 2 for ago, after in itertools.pairwise(values[few:])]
        noise2 = sum(each2) / len(each2) / 2
        first, last = sum(values[:few]) / few, sum(values[-quarter:]) / quarter
        return first, last, min(noise2 / few, INFINITE), min(noise2 / quarter, INFINITE)

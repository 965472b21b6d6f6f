"""Certainty of a probe's numbers: latencies less precise than promised, paths whose directions differ. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.tools.probe.datagrams import Trips
from hocket.tools.probe.quantile import PRECISION

Flow = tuple[int, int]

SHOWN_MAX = 5
"""Limit on pairs named in a sentence; the file has all."""

RATES_APART = 0.1
"""Relative difference of the two directions above which it is reported: trains differ by a few percent anyway."""


def imprecise(trips: Mapping[Flow, Trips], names: Sequence[str], pair_s: float) -> str:
    """A sentence on pairs whose latency was not known to PRECISION in time; empty when all were.

    >>> imprecise({(0, 1): Trips(1e-4, 640, 0, 0, 0.07)}, ["a", "b"], 1.0).partition(":")[0]
    'the latency of 1 of 1 measurements is not known to 2%'
    """
    missed = sorted(
        (pair for pair, each in trips.items() if each.precision > PRECISION),
        key=lambda pair: (-trips[pair].precision, pair),
    )
    if not missed:
        return ""
    worst = _listed([f"{names[a]} to {names[b]} {within(trips[a, b].precision)}" for a, b in missed])
    return (
        f"the latency of {len(missed)} of {len(trips)} measurements is not known to {PRECISION:.0%}: {worst}; the budget of "
        f"{pair_s:g} s a pair was over\nhint: --pair-budget gives each pair more time"
    )


def lopsided_trips(trips: Mapping[Flow, Trips], names: Sequence[str]) -> str:
    """A sentence on pairs whose two ends see different round trips, beyond their uncertainty."""
    found = []
    for (a, b), there in sorted(trips.items()):
        back = trips.get((b, a))
        if a > b or back is None:
            continue
        less, more = sorted((there.round_trip_s, back.round_trip_s))
        if more * (1 - max(PRECISION, there.precision, back.precision)) > less * (
            1 + max(PRECISION, there.precision, back.precision)
        ):
            times = f"{there.round_trip_s * 1e6:.0f} and {back.round_trip_s * 1e6:.0f} µs"
            found.append((more / less, f"{names[a]} and {names[b]} {times}"))
    found.sort(key=lambda each: -each[0])
    return (
        f"round trips differ by the end that asks, for {len(found)} pairs: {_listed([note for _, note in found])}"
        if found
        else ""
    )


def lopsided_rates(rates: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    """A sentence on pairs whose rate differs by direction; bit/s, row: source.

    >>> lopsided_rates([[0, 1e9], [4e8, 0]], ["a", "b"])
    'rates differ by direction, for 1 pairs: a to b 1000 Mbit/s, back 400'
    """
    found = []
    for a, row in enumerate(rates):
        for b in range(a + 1, len(row)):
            there, back = row[b], rates[b][a]
            if min(there, back) < max(there, back) * (1 - RATES_APART):
                note = f"{names[a]} to {names[b]} {there / 1e6:.0f} Mbit/s, back {back / 1e6:.0f}"
                found.append((min(there, back) / max(there, back), note))
    found.sort(key=lambda each: each[0])
    return (
        f"rates differ by direction, for {len(found)} pairs: {_listed([note for _, note in found])}"
        if found
        else ""
    )


def within(precision: float) -> str:
    """Format a precision for people.

    >>> within(0.013), within(1.0)
    ('±1.3 %', 'unknown')
    """
    return "unknown" if precision >= 1 else f"±{100 * precision:.2g} %"


def _listed(notes: Sequence[str]) -> str:
    more = f" and {len(notes) - SHOWN_MAX} more" if len(notes) > SHOWN_MAX else ""
    return "; ".join(notes[:SHOWN_MAX]) + more

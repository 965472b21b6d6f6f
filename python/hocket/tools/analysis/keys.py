"""Times of each key: how long it was searched, waited for and updated, or, in an all-reduce, waited for and exchanged.

A key is a variable of a parameter server, or a bucket. `servers` says what the times of a server's key are. In an all-reduce, the
synchronisation of a bucket is from its first rank's launch to its last one's, and the exchange from there to the end on the rank
that has the result last: what is left when no rank has to be waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.tools.analysis.summary import Durations, Summary
from hocket.tools.formats.launches import Iteration

KEYS_MAX = 1 << 12
"""Limit of keys with times of their own, by server; the largest models have about as many variables."""


class KeyTimes(Struct, frozen=True, kw_only=True):
    """Times of one key, over all iterations of training. `node`: its server; None: all ranks of an all-reduce. A time is None where
    the trace has no such record."""

    node: int | None
    key: int
    name: str
    search: Summary | None
    synchronisation: Summary | None
    update: Summary | None
    exchange: Summary | None


class KeyDurations:
    """Durations of several kinds, by key."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._kinds = kinds
        self._times: dict[int, dict[str, Durations]] = {}
        self._others: set[int] = set()

    def add_ns(self, kind: str, keys: npt.NDArray[np.int32], values: npt.NDArray[np.int64]) -> None:
        """Collect nanoseconds: a value of each of `keys`, of which any may be there several times."""
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        bounds = np.flatnonzero(np.diff(ordered)) + 1
        firsts = ordered[np.concatenate([[0], bounds])].tolist() if len(ordered) else []
        for key, own in zip(firsts, np.split(values[order], bounds), strict=False):
            times = self._of(key)
            if times is not None:
                times[kind].add_ns(own)

    @property
    def left_out(self) -> int:
        """Number of keys beyond the limit, up to as many again."""
        return len(self._others)

    def summaries(self) -> Iterator[tuple[int, dict[str, Summary | None]]]:
        """Yield each key and its times by kind, in the keys' order."""
        for key, times in sorted(self._times.items()):
            yield key, {kind: durations.summary() for kind, durations in times.items()}

    def _of(self, key: int) -> dict[str, Durations] | None:
        if key not in self._times and len(self._times) == KEYS_MAX:
            if len(self._others) < KEYS_MAX:
                self._others.add(key)
            return None
        return self._times.setdefault(key, {kind: Durations() for kind in self._kinds})


def of_launches(ranks: Sequence[Sequence[Iteration]], names: dict[int, str]) -> tuple[KeyTimes, ...]:
    """Return the times of each program's launches that all ranks recorded; none for a single rank, which waits for nobody."""
    if len(ranks) < 2:
        return ()
    by_launch: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for own in ranks:
        for iteration in own:
            for launch in iteration.launches:
                moments = by_launch.setdefault((launch.program, launch.instance), [])
                moments.append((launch.ready_ns, launch.end_ns))
    whole = [(program, moments) for (program, _), moments in by_launch.items() if len(moments) == len(ranks)]
    if not whole:
        return ()
    programs = np.array([program for program, _ in whole], np.int32)
    ready_ns, end_ns = np.moveaxis(np.array([moments for _, moments in whole], np.int64), 2, 0)
    times = KeyDurations(("synchronisation", "exchange"))
    times.add_ns("synchronisation", programs, ready_ns.max(axis=1) - ready_ns.min(axis=1))
    times.add_ns("exchange", programs, end_ns.max(axis=1) - ready_ns.max(axis=1))
    return tuple(
        KeyTimes(
            node=None,
            key=program,
            name=names.get(program, f"key {program}"),
            search=None,
            synchronisation=own["synchronisation"],
            update=None,
            exchange=own["exchange"],
        )
        for program, own in times.summaries()
    )

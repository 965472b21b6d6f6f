"""Dependencies between records, and the chain of waits that determines an iteration's length.

A worker's chain begins with its last pull received in an iteration and goes back along `id_dep` until a record that waits for
several, which is the push that waits for the previous iteration. Each link is named by what bounds it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.tools.analysis.messages import Rows, groups
from hocket.tools.analysis.phases import PULL_RECV_WORKER
from hocket.tools.analysis.summary import Durations, Summary
from hocket.tools.formats import dlc

DEPENDENCY_TYPES = ("independent", "push on push", "pull on push", "pull on pull", "push on pull")

CHAIN_MAX = 8
"""Limit of links followed back: a worker's key has four records an iteration."""

KEYS_SHOWN_MAX = 10

PUSH, REPLY = 0, dlc.RECV
PULL = dlc.PULL

BOUNDS = {
    PUSH: "computation: from the last pull of the iteration before to the push",
    REPLY: "network and server: push sent to push acknowledged (transfer, synchronisation, update)",
    PULL: "worker: push acknowledged to pull sent",
    PULL_RECV_WORKER: "network and server: pull sent to pull received (search, transfer)",
}
"""Causes of delay between a worker's record and the record that it waits for, by kind of the former."""


class DependencyKind(Struct, frozen=True, kw_only=True):
    """Records of one `dep_type`; `one_to_many` wait for several, and their `d_time` is not exact."""

    kind: str
    records: int
    one_to_many: int
    d_time: Summary | None


class Link(Struct, frozen=True, kw_only=True):
    """Link of the critical path, over all iterations."""

    bound: str
    share: float
    time: Summary


class CriticalKey(Struct, frozen=True, kw_only=True):
    """A layer and the share of iterations whose chain it ended."""

    layer: int
    name: str
    iterations_share: float


class CriticalPath(Struct, frozen=True, kw_only=True):
    node: int
    iterations: int
    links: tuple[Link, ...]
    last_layers: tuple[CriticalKey, ...]


class DependencyCount:
    def __init__(self) -> None:
        self._times = [Durations() for _ in DEPENDENCY_TYPES]
        self._many = [0] * len(DEPENDENCY_TYPES)
        self._records = [0] * len(DEPENDENCY_TYPES)

    def add(self, rows: Rows) -> None:
        training = rows["code"] != dlc.SETUP
        kinds, several, times_us = (
            rows["dep_type"][training],
            rows["dep_key"][training] < 0,
            rows["d_time_us"][training],
        )
        for kind, times in enumerate(self._times):
            own = kinds == kind
            many = own & several if kind else np.zeros_like(own)
            self._records[kind] += int(own.sum())
            self._many[kind] += int(many.sum())
            times.add_ns(times_us[own & ~many] * 1000)

    @property
    def negative(self) -> int:
        """Number of negative `d_time`s."""
        return sum(each.negative for each in self._times[1:])

    def result(self) -> tuple[DependencyKind, ...]:
        return tuple(
            DependencyKind(
                kind=name,
                records=self._records[kind],
                one_to_many=self._many[kind],
                d_time=self._times[kind].summary() if kind else None,
            )
            for kind, name in enumerate(DEPENDENCY_TYPES)
        )


class PathCount:
    """Follower of one worker's chains in its rows, which hold complete iterations."""

    def __init__(self) -> None:
        self._links = {code: Durations() for code in BOUNDS}
        self._last: dict[int, int] = {}
        self._before: tuple[int, int] | None = None
        self._iterations = 0

    def add(self, rows: Rows) -> None:
        """Follow the chains of these iterations, which come after those so far."""
        for ordered, starts in groups(rows, "iteration", "key", "num", "peer"):
            self._follow(ordered[starts])

    def _follow(self, rows: Rows) -> None:
        """Follow the chains of `rows`, which are in order, one for each operation."""
        pulls = np.flatnonzero(rows["code"] == PULL_RECV_WORKER)
        if not len(pulls):
            return
        by_time = pulls[np.lexsort((rows["time_ns"][pulls], rows["iteration"][pulls]))]
        iteration = rows["iteration"][by_time]
        lasts = by_time[np.flatnonzero(np.diff(iteration, append=iteration[-1:] + 1))]
        numbers, ended = rows["iteration"][lasts], rows["time_ns"][lasts]
        before = np.concatenate([[self._before[1] if self._before else 0], ended[:-1]])
        known = np.concatenate([[self._before[0] if self._before else -2], numbers[:-1]]) == numbers - 1
        self._before = int(numbers[-1]), int(ended[-1])
        counted = known & (numbers >= 0)
        self._iterations += int(counted.sum())
        for key, count in zip(
            *(each.tolist() for each in np.unique(rows["key"][lasts[counted]], return_counts=True)),
            strict=True,
        ):
            self._last[key] = self._last.get(key, 0) + count
        here, since = lasts[counted], before[counted]
        for _ in range(CHAIN_MAX):
            if not len(here):
                return
            found = _waited_for(rows, here)
            many = found < 0
            times = rows["time_ns"][here]
            self._add(rows["code"][here[many]], (times - since)[many])
            self._add(rows["code"][here[~many]], (times - rows["time_ns"][found])[~many])
            here, since = found[~many], since[~many]

    def _add(self, codes: npt.NDArray[np.uint8], times: npt.NDArray[np.int64]) -> None:
        for code, durations in self._links.items():
            durations.add_ns(times[codes == code])

    @property
    def negative(self) -> int:
        """Number of links that end before they begin."""
        return sum(each.negative for each in self._links.values())

    def result(self, node: int, names: dict[int, str]) -> CriticalPath | None:
        """Return the critical path; None when no iteration's chain is known."""
        if not self._iterations:
            return None
        total_us = sum(each.total_us for each in self._links.values()) or 1.0
        links = []
        for code, durations in self._links.items():
            time = durations.summary()
            if time is not None:
                links.append(Link(bound=BOUNDS[code], share=durations.total_us / total_us, time=time))
        often = sorted(self._last.items(), key=lambda each: (-each[1], each[0]))[:KEYS_SHOWN_MAX]
        keys = (
            CriticalKey(
                layer=key, name=names.get(key, f"key {key}"), iterations_share=count / self._iterations
            )
            for key, count in often
        )
        return CriticalPath(
            node=node, iterations=self._iterations, links=tuple(links), last_layers=tuple(keys)
        )


def _waited_for(rows: Rows, here: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of the record that each waits for (the first one for several peers); -1: several, none, or missing."""
    own = np.zeros(len(rows), np.int64)
    wanted = np.zeros(len(here), np.int64)
    there = rows["dep_key"][here] >= 0
    # Positions among the existing values, so that the two make one number.
    for name, sought in (("num", "dep_num"), ("key", "dep_key")):
        values, place = np.unique(rows[name], return_inverse=True)
        at = np.searchsorted(values, rows[sought][here]).clip(max=len(values) - 1)
        there &= values[at] == rows[sought][here]
        own, wanted = own * len(values) + place, wanted * len(values) + at
    order = np.argsort(own, kind="stable")
    at = np.searchsorted(own[order], wanted).clip(max=len(own) - 1)
    return np.where(there & (own[order][at] == wanted), order[at], -1)

"""Time of a parameter server on its keys: searching them, waiting for all workers, updating them.

Search is from a pull's arrival to its answer, as in the answer's `d_time`. If an answer to a push waits for all workers, the server
is synchronous: synchronisation is from the first to the last push of a key in the iteration, update from there to the first answer.
If it waits for one worker, the server is asynchronous: there is no synchronisation, and the answer's `d_time` is the update.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hocket.tools.analysis.keys import KeyDurations, KeyTimes
from hocket.tools.analysis.messages import Rows, groups
from hocket.tools.analysis.summary import Durations, Summary
from hocket.tools.formats import dlc

PUSH_RECV, PUSH_SEND, PULL_SEND = dlc.RECV | dlc.SERVER, dlc.SERVER, dlc.PULL | dlc.SERVER


class ServerTimes(Struct, frozen=True, kw_only=True):
    """Times of one server, per key and iteration of training; None where it has no such record."""

    node: int
    synchronous: bool | None
    search: Summary | None
    synchronisation: Summary | None
    update: Summary | None


class Lateness(Struct, frozen=True, kw_only=True):
    """Frequency with which a worker's push of a key was the last, and its delay after the first, on the server's clock."""

    node: int
    worker: int
    last_share: float
    mean_after_first_us: float


class ServerCount:
    """Collector of one server's rows, which hold complete iterations."""

    def __init__(self) -> None:
        self._search, self._synchronisation, self._update = Durations(), Durations(), Durations()
        self._asynchronous = Durations()
        self._keys = KeyDurations(("search", "synchronisation", "update", "asynchronous"))
        self._synchronous_answers = 0
        self._last: dict[int, int] = {}
        self._behind_ns: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._rounds = 0

    def add(self, rows: Rows) -> None:
        rows = rows[rows["iteration"] >= 0]
        answers = rows[(rows["code"] == PULL_SEND) & (rows["dep_key"] >= 0)]
        self._search.add_ns(answers["d_time_us"] * 1000)
        self._keys.add_ns("search", answers["key"], answers["d_time_us"] * 1000)
        answers = rows[rows["code"] == PUSH_SEND]
        alone = answers["dep_key"] >= 0
        self._synchronous_answers += int((~alone & (answers["dep_type"] != 0)).sum())
        self._asynchronous.add_ns(answers["d_time_us"][alone] * 1000)
        self._keys.add_ns("asynchronous", answers["key"][alone], answers["d_time_us"][alone] * 1000)
        pushes = rows[(rows["code"] == PUSH_RECV) | (rows["code"] == PUSH_SEND)]
        for ordered, starts in groups(pushes, "iteration", "key"):
            self._rows_of_keys(ordered, starts)

    def _rows_of_keys(self, ordered: Rows, starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        arrived, time = ordered["code"] == PUSH_RECV, ordered["time_ns"]
        late, early = np.iinfo(np.int64).max, np.iinfo(np.int64).min
        first = np.minimum.reduceat(np.where(arrived, time, late), starts)
        last = np.maximum.reduceat(np.where(arrived, time, early), starts)
        answered = np.minimum.reduceat(np.where(arrived, late, time), starts)
        whole = (first < late) & (answered < late)
        key, pushed = ordered["key"][starts], first < late
        self._synchronisation.add_ns((last - first)[pushed])
        self._keys.add_ns("synchronisation", key[pushed], (last - first)[pushed])
        self._update.add_ns((answered - last)[whole])
        self._keys.add_ns("update", key[whole], (answered - last)[whole])
        of = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(ordered)))
        for worker in np.unique(ordered["peer"][arrived]).tolist():
            own = arrived & (ordered["peer"] == worker)
            self._last[worker] = self._last.get(worker, 0) + int((time[own] == last[of[own]]).sum())
            self._behind_ns[worker] = self._behind_ns.get(worker, 0) + int((time[own] - first[of[own]]).sum())
            self._seen[worker] = self._seen.get(worker, 0) + int(own.sum())

    @property
    def negative(self) -> dict[str, int]:
        """Number of negative durations of each kind; updates of the kind that the server performs."""
        update = self._update if self.synchronous else self._asynchronous
        times = {"search": self._search, "update": update}
        return {name: each.negative for name, each in times.items()}

    @property
    def synchronous(self) -> bool | None:
        """True if the server is synchronous, by the majority of answers to pushes; None without answers."""
        if not (self._synchronous_answers or self._asynchronous.count):
            return None
        return self._synchronous_answers >= self._asynchronous.count

    def result(self, node: int) -> ServerTimes:
        synchronous = self.synchronous
        return ServerTimes(
            node=node,
            synchronous=synchronous,
            search=self._search.summary(),
            synchronisation=self._synchronisation.summary() if synchronous else None,
            update=(self._update if synchronous else self._asynchronous).summary(),
        )

    @property
    def keys_left_out(self) -> int:
        """Number of keys without times of their own."""
        return self._keys.left_out

    def keys(self, node: int, names: dict[int, str]) -> tuple[KeyTimes, ...]:
        """Return the times of each key."""
        synchronous = self.synchronous
        return tuple(
            KeyTimes(
                node=node,
                key=key,
                name=names.get(key, f"key {key}"),
                search=times["search"],
                synchronisation=times["synchronisation"] if synchronous else None,
                update=times["update" if synchronous else "asynchronous"],
                exchange=None,
            )
            for key, times in self._keys.summaries()
        )

    def lateness(self, node: int) -> tuple[Lateness, ...]:
        """Return the lateness of each worker, if there are several."""
        if len(self._seen) < 2:
            return ()
        return tuple(
            Lateness(
                node=node,
                worker=worker,
                last_share=self._last[worker] / seen,
                mean_after_first_us=self._behind_ns[worker] / seen / 1000,
            )
            for worker, seen in sorted(self._seen.items())
        )

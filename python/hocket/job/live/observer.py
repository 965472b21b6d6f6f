"""Observer of a running job: what all ranks have reported last, who is gone, and whom the others wait for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hocket import typed
from hocket.artefacts.decoding import MALFORMED
from hocket.errors import RendezvousError, StoreGoneError
from hocket.job.live.blame import Blame, blame
from hocket.job.live.files import LiveJob
from hocket.job.live.status import VERSION, Status
from hocket.job.store.live import Gone, Sight
from hocket.job.store.store import Store

CONNECT_TIMEOUT_S = 5.0
PATIENCE_S = 0.5
"""Time to retry if nobody listens: a job that has ended is not waited for."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Last report of a rank, `age_s` seconds after the store had it."""

    age_s: float
    status: Status


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Job at one look.

    Attributes:
        ranks: reports by rank.
        gone: ranks that left or were lost, with why.
        blame: rank for which the others wait, if one is late.
        network_s: part of a step that even the rank which waits least waits: for the network; None: not known.
        goodput: share of an elastic job's work that stands, where its launcher tells.
        others: number of ranks whose reports are of another version of Hocket.
        dumps: number of times that dumps were asked for.
        ended: how the job has ended, in the words of its launcher; None: it runs.
    """

    ranks: dict[int, Seen]
    gone: dict[int, Gone]
    blame: Blame | None
    network_s: float | None
    goodput: float | None
    others: int = 0
    dumps: int = 0
    ended: str | None = None

    def waits_for_others_s(self, rank: int) -> float | None:
        """Return the part of a step for which a rank waits for other ranks, not for the network, or None."""
        wait_s = self.ranks[rank].status.wait_s
        return None if wait_s is None or self.network_s is None else max(0.0, wait_s - self.network_s)


@dataclass
class Observer:
    """Observer with one connection at a time, for any thread. `find` returns the job whenever it connects: ranks of an elastic job
    that meet anew do so at another store."""

    find: Callable[[], LiveJob]

    def __post_init__(self) -> None:
        """Connect at the first look."""
        self._store: Store | None = None
        self._lock = threading.Lock()

    def look(self, stack_of: int | None = None, *, dumps: bool = False) -> View:
        """Return the job now. `stack_of`: rank whose Python stack is to be in one of its next reports; `dumps`: all ranks are to
        write dumps.

        StoreGoneError: the job has ended. RendezvousError: something else listens there, or does not let this process in.
        """
        with self._lock:
            job = self.find()
            if self._store is None or self._store.address != job.store:
                self._disconnect()
                self._store = self._connected(job)
            try:
                return view_of(self._store.look(stack_of, dumps=dumps))
            except StoreGoneError:
                self._store = None
                raise

    def close(self) -> None:
        """Disconnect; idempotent."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._store is not None:
            self._store.leave()
            self._store = None

    def _connected(self, job: LiveJob) -> Store:
        return Store(
            job.store,
            bytes.fromhex(job.secret),
            rank=None,
            who="an observer",
            timeout_s=CONNECT_TIMEOUT_S,
            patience_s=PATIENCE_S,
        )


def view_of(sight: Sight) -> View:
    """Return what an observer makes of the ranks' reports. RendezvousError: they are all of another version of Hocket."""
    ranks: dict[int, Seen] = {}
    for rank, report in sight.reports.items():
        with contextlib.suppress(*MALFORMED):
            status = typed.of_json(report.status, Status)
            if status.version == VERSION:
                ranks[rank] = Seen(age_s=report.age_s, status=status)
    if sight.reports and not ranks:
        raise RendezvousError(
            "the job's ranks report in words of another version of Hocket\nhint: look with the version that the job runs"
        )
    waits = [each.status.wait_s for each in ranks.values() if each.status.wait_s is not None]
    return View(
        ranks=ranks,
        gone=sight.gone,
        blame=blame(
            {rank: (each.age_s, each.status) for rank, each in ranks.items()}, sight.gone, sight.ended
        ),
        network_s=min(waits) if waits and len(waits) == len(ranks) else None,
        goodput=sight.goodput,
        others=len(sight.reports) - len(ranks),
        dumps=sight.dumps,
        ended=None if sight.ended is None else sight.ended.message,
    )

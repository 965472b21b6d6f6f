"""Reports of a job's ranks about how they get on, as the store keeps them for observers, without I/O.

Ages are by the store's clock: hosts' own clocks differ, and a rank that is stopped tells no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct

from hocket.job.store.messages import Answer, Done, Failed, Look, Tell

STATUS_BYTES_MAX = 1 << 17
"""Size of one report: of 1,000 peers and a deep stack, twice."""
RANKS_MAX = 4096
"""Number of ranks that report. With as many, a report may have 4 KiB before a look is too large for a frame."""

DUMPS_NS = 2_000_000_000
"""Time in which all who want dumps want the same: a job fails on several ranks at once."""


class Report(Struct, frozen=True, kw_only=True):
    """Last report of a rank, `age_s` seconds after it came."""

    age_s: float
    status: Raw


class Wanted(Struct, frozen=True, kw_only=True):
    """Wishes of observers to a rank that reports: its Python stack, and a dump if it has not written number `dumps` yet."""

    stack: bool
    dumps: int


class Gone(Struct, frozen=True, kw_only=True):
    """Rank that is not in the job any more. `fault`: rank because of which that is, perhaps itself; None: it left in order."""

    message: str
    fault: int | None


class Sight(Struct, frozen=True, kw_only=True):
    """Job as an observer sees it. `goodput`: share of an elastic job's work that stands, if its launcher knows it. `dumps`: number
    of times that dumps were wanted. `ended`: how the job has ended, and the rank at fault, once its launcher knows."""

    reports: dict[int, Report]
    gone: dict[int, Gone]
    goodput: float | None = None
    dumps: int = 0
    ended: Gone | None = None


class Live:
    """Reports of one job."""

    def __init__(self) -> None:
        """Begin without reports."""
        self.goodput: Callable[[], float | None] = lambda: None
        """Source of the job's goodput: its launcher's."""
        self.ended: Gone | None = None
        """End of the job, from its launcher."""
        self.first: Callable[[], None] = lambda: None
        """Callback for the first report."""
        self._observers: dict[int, bool] = {}
        """Clients that have looked, and whether they have since the end."""
        self._reports: dict[int, tuple[int, Raw]] = {}
        self._wanted: set[int] = set()
        self._dumps, self._dumps_ns = 0, -DUMPS_NS

    def tell(self, request: Tell, now_ns: int) -> Answer:
        """Keep a report."""
        if len(bytes(request.status)) > STATUS_BYTES_MAX:
            return Failed(message=f"a report is too large: live.STATUS_BYTES_MAX is {STATUS_BYTES_MAX}")
        if request.rank not in self._reports and len(self._reports) >= RANKS_MAX:
            return Failed(message=f"too many ranks report: live.RANKS_MAX is {RANKS_MAX}")
        if not self._reports:
            self.first()
        self._reports[request.rank] = now_ns, request.status.copy()
        wanted = request.rank in self._wanted
        self._wanted.discard(request.rank)
        return Done(value=Raw(msgspec.json.encode(Wanted(stack=wanted, dumps=self._dumps))))

    def all_told(self) -> bool:
        """Return whether all observers have looked since the job's end."""
        return all(list(self._observers.values()))

    def forget(self, client: int) -> None:
        """Note that a client is gone."""
        self._observers.pop(client, None)

    def look(
        self, client: int, request: Look, left: Mapping[int, Failed], lost: Mapping[int, Failed], now_ns: int
    ) -> Answer:
        """Return a `Sight`. `left`: ranks that are gone in order; `lost`: others that are gone; with why."""
        self._observers[client] = self.ended is not None
        if request.stack_of is not None:
            self._wanted.add(request.stack_of)
        if request.dumps and now_ns - self._dumps_ns >= DUMPS_NS:
            self._dumps, self._dumps_ns = self._dumps + 1, now_ns
        sight = Sight(
            reports={
                rank: Report(age_s=(now_ns - told_ns) * 1e-9, status=status)
                for rank, (told_ns, status) in sorted(self._reports.items())
            },
            gone={rank: Gone(message=each.message, fault=None) for rank, each in left.items()}
            | {rank: Gone(message=each.message, fault=each.rank) for rank, each in lost.items()},
            goodput=self.goodput(),
            dumps=self._dumps,
            ended=self.ended,
        )
        return Done(value=Raw(msgspec.json.encode(sight)))

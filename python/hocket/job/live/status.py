"""Report of a rank about how it gets on: what the publisher sends once a second, and observers read."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from statistics import median

from msgspec import Struct

from hocket import _native
from hocket.job.live.process import Whereabouts
from hocket.job.live.progress import Doing, Progress

VERSION = 3
STACK_REPORTS = 10
LONG_S, AGAIN_S = 0.25, 0.2
"""A rank that does one thing for longer than a step of its and LONG_S reports that at once, and again every AGAIN_S, with its stack
unless it waits: whoever looks need not ask for it."""
AGAIN_TIMES, AGAIN_MAX_S = 3, 3.0
"""Until it has done that for so many times that time, and so long more; then it reports as always."""
NS = 1e-9
PAGE_BYTES = resource.getpagesize()


class Sent(Struct, frozen=True, kw_only=True):
    """Traffic to a peer over network connections: bytes since the start, and the rate since the last report in byte/s."""

    peer: int
    bytes: int
    byte_per_s: float


class Status(Struct, frozen=True, kw_only=True):
    """Report of one rank.

    Attributes:
        version: of this structure; an observer of another version says so.
        member: number that the process keeps while the ranks of an elastic job change.
        elastic: True if the job goes on without ranks that it loses.
        process: its id on its host.
        interval_s: time between reports.
        steps: number of steps that the process has made.
        doing, doing_s: what it does, and for how many seconds.
        step_s, wait_s, loading_s: medians over the latest steps, in seconds: of a step, and of it waiting and loading data; None:
            not known.
        worked_s: time since the last step, without waits.
        step_s_total, wait_s_total, loading_s_total: sums over all steps but the first.
        sent: traffic to peers to which anything was sent.
        epoch: number of the plan's epoch; `plan`, `promise`: in words.
        resident_bytes: memory of the process.
        trains: True if the rank takes part in steps; others serve or help.
        call: what a rank that waits has called, and waits for; None: not known.
        whereabouts: of the process, for others of its machine.
        stack: Python stack of its main thread when an observer last asked for it; `stacks`: how many were asked for until now.
        writes_dumps: True if the rank writes dumps when it is asked to.
        dumps: number of the last dump that the rank was asked for and has written, or tried to.
    """

    version: int
    rank: int
    world: int
    member: int
    host: str
    elastic: bool
    process: int
    interval_s: float
    steps: int
    doing: Doing
    doing_s: float
    step_s: float | None
    wait_s: float | None
    loading_s: float | None
    worked_s: float
    step_s_total: float
    wait_s_total: float
    loading_s_total: float
    sent: tuple[Sent, ...]
    epoch: int
    plan: str
    promise: str
    resident_bytes: int
    trains: bool = True
    call: str | None = None
    whereabouts: Whereabouts | None = None
    stack: str | None = None
    stacks: int = 0
    writes_dumps: bool = False
    dumps: int = 0


class Reporter:
    """Maker of one rank's reports. Rates are those since its last report."""

    def __init__(
        self,
        progress: Progress,
        *,
        rank: int,
        world: int,
        member: int,
        host: str,
        elastic: bool,
        interval_s: float,
        trains: bool = True,
    ) -> None:
        """Report nothing yet."""
        self._progress = progress
        self._rank, self._world, self._member, self._host = rank, world, member, host
        self._elastic, self._interval_s, self._trains = elastic, interval_s, trains
        self._whereabouts: Whereabouts | None = None
        self._before_ns, self._sent_before = _native.now_ns(), dict[int, int]()
        self._stack: str | None = None
        self._stack_reports = self._stacks = 0
        self.writes_dumps, self.dumps = False, 0
        """True if this rank writes dumps; number of the last one that it was asked for and has written."""

    def is_at(self, whereabouts: Whereabouts) -> None:
        """Add these to all reports from now on."""
        self._whereabouts = whereabouts

    def stack(self, text: str) -> None:
        """Add a stack to the next STACK_REPORTS reports, so that whoever looks now and then sees it."""
        self._stack, self._stack_reports = text, STACK_REPORTS
        self._stacks += 1

    def due_s(self, told_s: float) -> float:
        """Return the time until the next report is due, `told_s` after the last one."""
        long_s, lasts_s = self._long_s(), self._lasts_s()
        if lasts_s < long_s:
            return min(self._interval_s - told_s, long_s - lasts_s)
        return min(self._interval_s, AGAIN_S if self._tells_often() else self._interval_s) - told_s

    def is_long_busy(self) -> bool:
        """Return whether the rank does one thing for long, other than to wait, and should report its stack."""
        return (
            self._progress.now()[0] != "waiting" and self._lasts_s() >= self._long_s() and self._tells_often()
        )

    def _lasts_s(self) -> float:
        """Return for how long the rank does what it does now."""
        return max(0, _native.now_ns() - self._progress.now()[1]) * NS

    def _long_s(self) -> float:
        return long_after_s(_median([each[0] for each in tuple(self._progress.recent)]))

    def _tells_often(self) -> bool:
        return self._lasts_s() < AGAIN_TIMES * self._long_s() + AGAIN_MAX_S

    def status(self) -> Status:
        """Return a report of now."""
        self._stack_reports -= 1
        if self._stack_reports < 0:
            self._stack = None
        progress = self._progress
        now_ns = _native.now_ns()
        recent = tuple(progress.recent)
        whole, waited, loaded = progress.total
        doing, since_ns, call = progress.now()
        return Status(
            version=VERSION,
            rank=self._rank,
            world=self._world,
            member=self._member,
            host=self._host,
            elastic=self._elastic,
            process=os.getpid(),
            interval_s=self._interval_s,
            steps=progress.steps,
            doing=doing,
            doing_s=max(0, now_ns - since_ns) * NS,
            step_s=_median([each[0] for each in recent]),
            wait_s=_median([each[1] for each in recent]) if progress.tells_waits else None,
            loading_s=_median([each[2] for each in recent]) if progress.tells_loading else None,
            worked_s=progress.worked_ns(now_ns) * NS,
            step_s_total=whole * NS,
            wait_s_total=waited * NS,
            loading_s_total=loaded * NS,
            sent=self._sent(now_ns),
            epoch=progress.epoch,
            plan=progress.plan,
            promise=progress.promise,
            resident_bytes=_resident_bytes(),
            trains=self._trains,
            call=call,
            whereabouts=self._whereabouts,
            stack=self._stack,
            stacks=self._stacks,
            writes_dumps=self.writes_dumps,
            dumps=self.dumps,
        )

    def _sent(self, now_ns: int) -> tuple[Sent, ...]:
        read = self._progress.bytes_sent
        if read is None:
            return ()
        passed_s = max(1, now_ns - self._before_ns) * NS
        sent, before = dict(read()), self._sent_before
        self._before_ns, self._sent_before = now_ns, sent
        return tuple(
            Sent(peer=peer, bytes=now, byte_per_s=(now - before.get(peer, 0)) / passed_s)
            for peer, now in sorted(sent.items())
            if now
        )


def long_after_s(step_s: float | None) -> float:
    """Return after how long of one thing a rank reports it at once."""
    return LONG_S + (step_s or 0.0)


def _median(durations_ns: list[int]) -> float | None:
    return median(durations_ns) * NS if durations_ns else None


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES

"""Thread that reports how this rank gets on to the store at which the ranks have met: once in each interval, and when it does one
thing for long.

It has a connection of its own, since the rank's may be in a wait. The thread beside training cannot do it: its duties wait for all
ranks, and a report is of most use when one of them does not come. What it costs: `python -m benches live`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
import traceback
from collections.abc import Callable

from hocket.errors import RendezvousError, StoreGoneError, UsageError
from hocket.job.live.files import SUFFIX, LiveJob, kept
from hocket.job.live.process import Door
from hocket.job.live.status import Reporter
from hocket.job.store.store import Store
from hocket.stacks import frame_of

STACK_BYTES_MAX = 1 << 14
CONNECT_TIMEOUT_S = 10.0
END_S, HUNG_UP_S = 0.5, 2.5
"""Time for the thread to end by itself, and after its connection was ended: longer than a leave from the store may take."""

log = logging.getLogger("hocket.live")


class Publisher:
    """Publisher of one rank, until `close`. `announces`: a file lets observers on this host find the job."""

    def __init__(
        self,
        reporter: Reporter,
        job: LiveJob,
        *,
        rank: int,
        announces: bool,
        dump: Callable[[], None] | None = None,
    ) -> None:
        """Start the thread. Whatever keeps it from reporting is no reason to end the job. `dump` writes a dump."""
        self._reporter, self._job, self._rank = reporter, job, rank
        self._announces, self._dump = announces, dump
        reporter.writes_dumps = dump is not None
        self._closing = threading.Event()
        self._store: Store | None = None
        self._trains = threading.main_thread().ident
        self._thread = threading.Thread(target=self._run, name="hocket-live", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and its connection; idempotent."""
        self._closing.set()
        self._thread.join(END_S)
        store = self._store
        if self._thread.is_alive() and store is not None:
            store.hang_up()
            self._thread.join(HUNG_UP_S)

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            try:
                door = Door()
                stack.callback(door.close)
                self._reporter.is_at(door.whereabouts)
            except (OSError, ValueError, RuntimeError) as error:
                log.info("rank %d: nobody gets its stack while it holds Python's lock: %s", self._rank, error)
            try:
                if self._announces:
                    name = f"{self._job.process}-{self._job.generation}-{secrets.token_hex(4)}"
                    stack.enter_context(kept(name, self._job, SUFFIX))
            except (OSError, UsageError) as error:
                log.info("`hocket top` will not find this job by itself: %s", error)
            try:
                while not self._closing.is_set():
                    self._connect_and_report()
            except RendezvousError as error:
                # Nobody who looks can get to the store either; the wire says what is wrong, if anything is.
                log.debug("rank %d reports no more how it gets on: %s", self._rank, error)
            except Exception:  # of any kind: training goes on
                log.exception("rank %d reports no more how it gets on", self._rank)

    def _connect_and_report(self) -> None:
        """Report until `close`, or until the store does not answer: a launcher that was suspended answers again later.

        RendezvousError: it cannot be reached.
        """
        job = self._job
        who = f"the reports of rank {self._rank} (process {os.getpid()})"
        with Store(
            job.store,
            bytes.fromhex(job.secret),
            rank=None,
            who=who,
            timeout_s=CONNECT_TIMEOUT_S,
            given_up=self._closing,
        ) as store:
            self._store = store
            with contextlib.suppress(StoreGoneError):
                self._report(store)

    def _report(self, store: Store) -> None:
        while True:
            if self._reporter.is_long_busy():
                self._reporter.stack(self._stack())
            wanted = store.tell(self._rank, self._reporter.status())
            told_s = time.monotonic()
            if wanted.stack:
                self._reporter.stack(self._stack())
            if dumps := wanted.dumps > self._reporter.dumps:
                if self._dump is not None:
                    self._dump()
                self._reporter.dumps = wanted.dumps
            while (
                not (wanted.stack or dumps) and (due_s := self._reporter.due_s(time.monotonic() - told_s)) > 0
            ):
                if self._closing.wait(due_s):
                    return
            if self._closing.is_set():
                return

    def _stack(self) -> str:
        """Return the Python stack of the main thread, innermost call last, without its outermost part if it is deep."""
        frame = frame_of(self._trains)
        text = "".join(traceback.format_stack(frame)) if frame is not None else "the main thread has ended\n"
        return text.encode()[-STACK_BYTES_MAX:].decode(errors="replace")

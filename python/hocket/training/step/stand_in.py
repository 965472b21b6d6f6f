"""Stand-in of a rank that does not come to an exchange in time, in a job that ends with its first rank.

Ranks that step alone need one another for exchanges alone, whose programs wait for all. Where exchanges have a grace window, a
thread of each rank lets its part leave when enough others have come, and the window has passed: how far the rank came with the
last step that it has ended. The rank hears of it at the end of the step under way, goes on from that exchange with what it
has stepped since, and is where the others are. Nobody's progress is lost, and no membership is needed.

A rank comes at the end of an optimizer's step, and parameters change in such a step alone. So a lock that is held in it is enough.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hocket._native import LiveTurn
from hocket.errors import RendezvousError
from hocket.job.rendezvous import Job
from hocket.job.store.messages import TIMEOUT_MAX_S
from hocket.job.store.store import Store

CONNECT_TIMEOUT_S, END_S = 10.0, 2.5

log = logging.getLogger("hocket.delays")


class StandIn:
    """Stand-in of one rank, from `start` to `close`.

    Attributes:
        changed: its lock is held where the script's thread changes parameters or turns.
        late: the part of the last exchange left without the rank.
    """

    def __init__(
        self,
        job: Job,
        leave: Callable[[], Sequence[LiveTurn]],
        *,
        name: str,
        grace_s: float,
        quorum: int,
    ) -> None:
        """Begin before the first exchange. `leave` lets this rank's part of the next exchange leave, and returns the turns that are
        due with it; `name`: of these exchanges in the store; `quorum`: number of ranks that come before the window begins."""
        self._job, self._leave, self._name = job, leave, name
        self._grace_s, self._quorum = grace_s, quorum
        self.changed = threading.Condition(threading.RLock())
        self.late = False
        self._steps = self._closing = False
        self._exchanges = 0
        """Number of exchanges to which this rank's part has come."""
        self._due: Sequence[LiveTurn] | None = None
        """Turns that are due with an exchange in which the rank has not heard of yet."""
        self._error: BaseException | None = None
        self._store: Store | None = None
        # The rank's own connection may have to wait, and a step does not.
        self._tells = ThreadPoolExecutor(1, "hocket-came")
        self._thread = threading.Thread(target=self._run, name="hocket-stand-in", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def step_begins(self) -> None:
        """Keep parameters as they are for the script alone, until `step_ended`."""
        if not self._steps:
            self.changed.acquire()
            self._steps = True

    def step_ended(self) -> None:
        if self._steps:
            self._steps = False
            self.changed.notify_all()
            self.changed.release()

    def came(self) -> None:
        """Note that this rank comes to its next exchange by itself."""
        self.late = False
        self._come()

    def taken(self) -> Sequence[LiveTurn] | None:
        """Return the turns that are due with an exchange that this rank's part left for without it, once; None: there was none."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        due, self._due = self._due, None
        return due

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        store = self._store
        if store is not None:
            store.hang_up()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(END_S)
        self._tells.shutdown(wait=False, cancel_futures=True)

    def _come(self) -> None:
        key = self._key(self._exchanges)
        self._exchanges += 1
        self.changed.notify_all()
        if not self._closing:
            self._tells.submit(self._job.store.add, key)

    def _key(self, exchange: int) -> str:
        # No rank comes to an exchange before all have come to the last but one: two counters are enough.
        return f"{self._name}-{'odd' if exchange % 2 else 'even'}"

    def _run(self) -> None:
        who = f"the exchanges of rank {self._job.rank} (process {os.getpid()})"
        try:
            with Store(
                self._job.store.address,
                self._job.secret,
                rank=None,
                who=who,
                timeout_s=CONNECT_TIMEOUT_S,
            ) as self._store:
                exchange = 0
                while not self._closing:
                    before = exchange // 2 * self._job.world
                    self._store.get(self._key(exchange), TIMEOUT_MAX_S, at_least=before + self._quorum)
                    self._stand_in(exchange)
                    exchange += 1
        except RendezvousError as error:
            # Exchanges go on, and wait for this rank as any step does; what is wrong, the wire says.
            if not self._closing:
                log.info("rank %d has no stand-in any more: %s", self._job.rank, error)

    def _stand_in(self, exchange: int) -> None:
        """Let this rank's part of an exchange leave when the window has passed, if the rank does not come itself."""
        with self.changed:
            if self.changed.wait_for(lambda: self._closing or self._exchanges > exchange, self._grace_s):
                return
            # What the exchange before has brought is taken between two steps of the rank.
            self.changed.wait_for(lambda: self._closing or self._due is None)
            if self._closing or self._exchanges > exchange:
                return
            self.late = True
            self._come()
            try:
                self._due = self._leave()
            except Exception as error:  # of any kind: the rank's own thread raises it
                self._error = error

"""Thread that warns, in the log of the process that runs it, of ranks for which all others wait, with their Python stacks.

The launcher runs it, or rank 0 where the launcher does not serve the store.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time

from hocket.errors import Error, RendezvousError, StoreGoneError
from hocket.job.live.blame import WORDS, ranks_in_words, since_s
from hocket.job.live.late import FIRST_S, GoesOn, Late, Lateness
from hocket.job.live.observer import Observer, View
from hocket.job.live.stack import is_excused, now

STACKS_MAX = 4
"""Number of ranks whose stacks are asked for at a time: of a host that is stopped, some stand for all."""
LOOK_S, COST_MAX = 0.2, 100
"""Time between looks, and its least ratio to the processor time of a look, which grows with the number of ranks."""
END_S = 0.5

log = logging.getLogger("hocket.live")


class Alarm:
    """Alarm of one job, until `close`."""

    def __init__(self, observer: Observer, *, late_s: float) -> None:
        """Start the thread. `late_s`: as `Lateness.least_s`."""
        self._observer = observer
        self._lateness = Lateness(late_s)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hocket-alarm", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; idempotent. One that waits for a stack ends when it has it, or the job is over."""
        self._closing.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        with contextlib.closing(self._observer):
            self._watch()

    def _watch(self) -> None:
        cost_s = before_s = 0.0
        # A look that connects costs more than all others.
        while not self._closing.wait(max(LOOK_S, COST_MAX * min(cost_s, before_s))):
            began_s = time.thread_time()
            try:
                view = self._observer.look()
                cost_s, before_s = time.thread_time() - began_s, cost_s
                self._look(view)
            except RendezvousError as error:
                # Ranks of an elastic job meet anew, at another store; a job that has ended needs no alarm.
                log.debug("nobody sees whether ranks are late: %s", error)
            except Exception:  # of any kind: the job goes on
                log.exception("nobody warns any more of ranks that are late")
                return

    def _look(self, view: View) -> None:
        reports = {rank: (each.age_s, each.status) for rank, each in view.ranks.items()}
        told = self._lateness.look(reports, view.gone, time.monotonic())
        for back in (each for each in told if isinstance(each, GoesOn)):
            log.warning(
                "rank %d on %s goes on after %.1f s",
                back.rank,
                view.ranks[back.rank].status.host,
                back.late_s,
            )
        late = [each for each in told if isinstance(each, Late)]
        for each in late[:STACKS_MAX]:
            stack = self._stack(each, view)
            if each.waited_s < FIRST_S and is_excused(stack):
                self._lateness.excuse(each.rank)
            elif not self._closing.is_set():
                log.warning("%s\n%s", words_of(each, view), stack)
        if more := late[STACKS_MAX:]:
            log.warning(
                "so %s late: %s",
                "is" if len(more) == 1 else "are",
                ranks_in_words([each.rank for each in more], 64),
            )

    def _stack(self, late: Late, view: View) -> str:
        try:
            return "its Python stack:\n" + now(self._observer, late.rank, view, silent=late.silent).rstrip()
        except StoreGoneError:
            return "the job has ended before it gave its Python stack"
        except Error as error:
            return str(error)


def words_of(late: Late, view: View) -> str:
    """Return who waits for a rank that is late, and what it does, as its last report says."""
    seen = view.ranks[late.rank]
    status = seen.status
    doing = f"{WORDS[status.doing]}, for {since_s(seen.age_s, status):.1f} s"
    if late.silent:
        doing = f"silent for {seen.age_s:.1f} s, and was {WORDS[status.doing]} before"
    calls = f" ({status.call})" if status.call and status.doing == "waiting" else ""
    again = f"; {late.unsaid} times more since the last warning" if late.unsaid else ""
    verb = "waits" if len(late.waiting) == 1 else "wait"
    return (
        f"rank {late.rank} on {status.host} is late: {ranks_in_words(late.waiting)} {verb} for it, for {late.waited_s:.1f} s so "
        f"far{again}; it is {doing}{calls}, after {status.steps} steps (process {status.process})"
    )

"""Successor of an elastic job's launcher that has died: it resumes from the journal, and the ranks have trained on."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import time
from pathlib import Path

from hocket.errors import RendezvousError, UsageError
from hocket.job.store import address as addresses
from hocket.job.store import listening
from hocket.job.store.server import Server
from hocket.members.change_log import Ended
from hocket.members.coordination import Coordination
from hocket.members.journal import Journal
from hocket.members.member_limits import Limits
from hocket.members.stores import Stores
from hocket.settings import Settings
from hocket.start.processes import SIGNALLED
from hocket.start.run import Outcome
from hocket.start.running import announced
from hocket.start.signals import collected_signals

TICK_S = 0.02
COME_BACK_S = 15.0
"""Time for ranks to come back; they look for another launcher several times a second."""
LINGER_S = 2.0
"""Time in which ranks that have not come yet may hear why the job ends."""
END_S = 10.0
"""Time to wait for ranks that were told to end."""

log = logging.getLogger("hocket.run")


def resume(path: Path) -> Outcome:
    """Coordinate until all ranks have ended. Their output is not shown: no process can take up another one's output.

    Raises:
        UsageError: the file is no journal, its launcher runs, or the job had not begun.
        RendezvousError: another program listens where the ranks look for their launcher, or they do not come.
        KeyboardInterrupt, SystemExit: as in `launch`.
    """
    journal = Journal.reopen(path)
    with contextlib.ExitStack() as stack:
        done = False
        stack.callback(lambda: journal.close(done=done))
        served, secret = journal.served, bytes.fromhex(journal.served.secret)
        if journal.generation.number == 0 and not journal.records:
            raise UsageError(
                f"the job of {path} had not begun when its launcher died, and has ended\nhint: start it again"
            )
        settings = Settings.from_environment(served.settings)
        listeners = listening.under(served.host, interface=settings.interface, one_host=False)
        stores = Stores(served.host, listeners, secret, settings.port_range)
        stack.callback(stores.close)
        limits = Limits.of(settings, served.members_min, served.members_max)
        coordination = Coordination.restored(journal, limits, stores)
        coordination.changes.take_down_in(settings.trace, begins=False)
        stack.callback(coordination.changes.end)
        port = addresses.split(served.coordinator)[1]
        server = stack.enter_context(Server(listeners, port, secret, coordination))
        stack.enter_context(announced(served.coordinator, served.secret, served.command, settings))
        signals = stack.enter_context(collected_signals())
        if range(*served.replacements):
            log.warning(
                "lost ranks are not replaced any more, as `respawn` is its first launcher's: others may join"
            )
        log.warning("the ranks of %s have %g s to come back", path, COME_BACK_S)
        lost = _wait(coordination, server, signals)
        if lost:
            raise RendezvousError(
                f"no rank of {path} came to {served.coordinator} within {COME_BACK_S:g} s: they have ended, or cannot reach "
                "this machine\nhint: see whether its ranks still run; remove the journal if they do not"
            )
        if server.failure is not None:
            return Outcome(failures=(), ended=Ended(why=server.failure, lost=()))
        done = True
        if signals:
            server.call(functools.partial(coordination.end, "its launcher was told to end"))
        now_s = time.monotonic()
        least_s, most_s = now_s + (LINGER_S if coordination.ended or signals else 0.0), now_s + END_S
        while time.monotonic() < (most_s if coordination.linked else least_s):
            time.sleep(TICK_S)
    if signals:
        if signals[0] == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(SIGNALLED + signals[0])
    return Outcome(failures=(), ended=coordination.ended)


def _wait(coordination: Coordination, server: Server, signals: list[int]) -> bool:
    """Wait until the job ends, is told to end, or its ranks are missing; return True in the last case."""
    deadline_s = time.monotonic() + COME_BACK_S
    while not (signals or coordination.over or coordination.ended is not None or server.failure is not None):
        if coordination.goes_on:
            deadline_s = time.monotonic() + COME_BACK_S
        elif time.monotonic() > deadline_s:
            return True
        time.sleep(TICK_S)
    return False

"""Successor of an elastic job's launcher that has died: it resumes from the journal, and the ranks have trained on."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from hocket.errors import RendezvousError, UsageError
from hocket.job.store import address as addresses
from hocket.job.store import listening
from hocket.members import arrival
from hocket.members.coordination import Coordination
from hocket.members.entrance import Entrance
from hocket.members.journal import Journal
from hocket.members.member_limits import Limits
from hocket.members.roster import Ended
from hocket.settings import Settings
from hocket.start.elastic import Place
from hocket.start.live import LiveGoodput, observed, tell_of_end
from hocket.start.outcome import Outcome
from hocket.start.running import announced
from hocket.start.signals import collected_signals
from hocket.start.until_over import end_by, tell_ranks, until_over

COME_BACK_S = 15.0
"""Time for ranks to come back; they look for another launcher several times a second."""

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
        served = journal.served
        if not journal.begun:
            raise UsageError(
                f"the job of {path} had not begun when its launcher died, and has ended\nhint: start it again"
            )
        settings = Settings.from_environment(served.settings)
        listeners = listening.under(served.host, interface=settings.interface, one_host=False)
        port = addresses.split(served.coordinator)[1]
        place = Place(host=served.host, listeners=listeners, secret=served.secret, port=port)
        stores = place.stores(stack, settings)
        limits = Limits.of(settings, served.members_min, served.members_max)
        coordination = Coordination.restored(journal, limits, stores)
        coordination.changes.take_down_in(settings.trace, begins=False)
        stack.callback(coordination.changes.end)
        shared = arrival.shared(settings)
        entrance = Entrance(lambda: coordination, stores, shared, founders=0, begun=True, job=served.job)
        stack.callback(lambda: tell_of_end(coordination, stores))
        met = journal.generation.number
        observed(stack, "", served.secret, served.command, settings, stores=stores, generation=met)
        server = place.server(stack, entrance, settings)
        stores.goodput = LiveGoodput(lambda: coordination, server)
        stack.enter_context(announced(served.coordinator, served.secret, served.command, settings))
        signals = stack.enter_context(collected_signals())
        if range(*served.replacements):
            log.warning(
                "lost ranks are not replaced any more, as `respawn` is its first launcher's: others may join"
            )
        log.warning("the ranks of %s have %g s to come back", path, COME_BACK_S)
        if until_over(lambda: coordination, server, signals, COME_BACK_S):
            raise RendezvousError(
                f"no rank of {path} came to {served.coordinator} within {COME_BACK_S:g} s: they have ended, or cannot reach "
                "this machine\nhint: see whether its ranks still run; remove the journal if they do not"
            )
        if server.failure is not None:
            return Outcome(failures=(), ended=Ended(why=server.failure, lost=()))
        done = True
        tell_ranks(coordination, server, "its launcher was told to end" if signals else None)
    end_by(signals)
    return Outcome(failures=(), ended=coordination.roster.ended)

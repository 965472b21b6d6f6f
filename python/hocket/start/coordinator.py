"""Coordinator of an elastic job as a process of its own: whoever starts the ranks, they come to its address."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import secrets
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hocket.errors import UsageError
from hocket.job.environment import MAKE_ONE, SECRET_BYTES_MIN
from hocket.job.store import address as addresses
from hocket.job.store import listening
from hocket.job.store.server import Server
from hocket.members import arrival
from hocket.members.coordination import Coordination
from hocket.members.entrance import Entrance
from hocket.members.journal import Journal, Served
from hocket.members.member_limits import Limits
from hocket.members.roster import Ended
from hocket.members.stores import Stores
from hocket.settings import Settings
from hocket.start.elastic import Place, timed
from hocket.start.live import LiveGoodput, observed, tell_of_end
from hocket.start.outcome import Outcome
from hocket.start.resume import COME_BACK_S
from hocket.start.running import announced
from hocket.start.signals import collected_signals
from hocket.start.until_over import TICK_S, end_by, tell_ranks, until_over

LOST_S = 1.0
"""Time without any rank after which a job without a journal ends: none of them comes back."""

log = logging.getLogger("hocket.coordinator")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Job to coordinate.

    Attributes:
        address: `HOST:PORT` by which ranks reach this machine; port 0: a free one.
        secret: in hexadecimal; None: one is made, which ranks of this user on this machine find by themselves.
        founders: number of ranks that begin.
        members_min, members_max: limits of the number of ranks.
        journal: file from which a coordinator goes on that is started again.
        wait_s: longest time until the founders have come.
    """

    address: str
    secret: str | None
    founders: int
    members_min: int
    members_max: int
    journal: Path | None
    wait_s: float


def coordinate(wanted: Wanted, settings: Settings) -> Outcome:
    """Coordinate until all ranks have ended.

    Raises:
        UsageError: the address is none of this machine, needs a secret, or the journal is another job's.
        RendezvousError: the port is taken.
        KeyboardInterrupt: Ctrl-C, which ends the job. SystemExit: SIGTERM or SIGHUP, which end it unless there is a journal.
    """
    settings = timed(settings, respawn=0, journal=wanted.journal)
    with contextlib.ExitStack() as stack:
        before = _resumed(wanted, stack)
        place = _place(wanted, settings, before)
        stores = place.stores(stack, settings)
        job = _Job(wanted, settings, stores, before)
        shared = arrival.shared(settings)
        entrance = Entrance(
            job.coordination,
            stores,
            shared,
            founders=wanted.founders,
            begun=before is not None,
            job=job.name,
        )
        command = ("hocket", *sys.argv[1:])
        # When those of this process have closed.
        stack.callback(lambda: tell_of_end(entrance.coordination, stores))
        met = 0 if before is None else before.generation.number
        observed(stack, "", place.secret, command, settings, stores=stores, generation=met)
        server = place.server(stack, entrance, settings)
        stores.goodput = LiveGoodput(lambda: entrance.coordination, server)
        where = addresses.join(place.host, server.port)
        job.keep(where, place, entrance, stack)
        stack.callback(lambda: entrance.coordination.changes.end())  # noqa: PLW0108  # of the job that began
        stack.enter_context(announced(where, place.secret, command, settings))
        signals = stack.enter_context(collected_signals())
        log.warning("ranks come with HOCKET_COORDINATOR=%s%s", where, _about_secret(wanted))
        why = _until_the_end(entrance, server, signals, wanted, again=before is not None)
        if signals and signals[0] != signal.SIGINT and job.outlives(entrance):
            log.warning(
                "ranks train on for %g s: start this coordinator again, with its journal, to go on",
                settings.coordinator_timeout_s,
            )
        elif server.failure is None:
            job.done = True
            why = "its coordinator was told to end" if signals else why
            tell_ranks(entrance.coordination, server, why)
    end_by(signals)
    ended = entrance.coordination.roster.ended
    if server.failure is not None:
        ended = Ended(why=server.failure, lost=())
    return Outcome(failures=(), ended=ended)


class _Job:
    """Coordinations of one job: the one that goes on from a journal, or as many as it takes to begin. `done`: it has ended."""

    def __init__(self, wanted: Wanted, settings: Settings, stores: Stores, before: Journal | None) -> None:
        self._wanted, self._settings, self._stores = wanted, settings, stores
        self._journal = before
        self._before = before
        self.name = secrets.token_hex(8) if before is None else before.served.job
        self.done = False

    def coordination(self) -> Coordination:
        """Return the coordination that goes on, or one of a job that has not begun."""
        limits = Limits.of(self._settings, self._wanted.members_min, self._wanted.members_max)
        if self._before is not None:
            made = Coordination.restored(self._before, limits, self._stores)
        else:
            made = Coordination(self._wanted.founders, limits, self._stores)
            made.journal = self._journal
        made.changes.take_down_in(self._settings.trace, begins=self._before is None)
        return made

    def keep(self, where: str, place: Place, entrance: Entrance, stack: contextlib.ExitStack) -> None:
        """Keep the journal, if there is to be one, until the stack ends."""
        if self._wanted.journal is None:
            return
        served = Served(
            host=place.host,
            coordinator=where,
            secret=place.secret,
            command=("hocket", *sys.argv[1:]),
            settings=dataclasses.replace(self._settings, coordinator=where).to_environment(),
            members_min=self._wanted.members_min,
            members_max=self._wanted.members_max,
            job=self.name,
        )
        journal = self._journal
        if journal is None:
            journal = Journal.create(self._wanted.journal, served, entrance.coordination.generation())
            entrance.coordination.journal = self._journal = journal
        journal.served = served
        stack.callback(lambda: journal.close(done=self.done))

    def outlives(self, entrance: Entrance) -> bool:
        """Return whether ranks go on without this process."""
        job = entrance.coordination
        return (
            self._journal is not None
            and not self._journal.lost
            and job.roster.founded
            and not job.roster.over
        )


def _resumed(wanted: Wanted, stack: contextlib.ExitStack) -> Journal | None:
    """Return the journal of a job that has begun; remove that of one that has not. UsageError: another coordinator keeps it."""
    if wanted.journal is None or not wanted.journal.exists():
        return None
    with contextlib.ExitStack() as undo:
        journal = Journal.reopen(wanted.journal)
        undo.callback(journal.close, done=False)
        if wanted.secret is not None and wanted.secret != journal.served.secret:
            raise UsageError(
                f"the journal {wanted.journal} is of a job with another secret\n"
                "hint: give that job's, or remove the journal if that job has ended"
            )
        undo.pop_all()
    stack.callback(journal.close, done=False)
    if journal.begun:
        return journal
    journal.close(done=True)
    return None


def _place(wanted: Wanted, settings: Settings, before: Journal | None) -> Place:
    host, port = addresses.split(wanted.address, variable="--listen")
    if host in addresses.UNSPECIFIED:
        raise UsageError(
            f"--listen {wanted.address}: ranks cannot come to that address\n"
            "hint: give the name or the address by which they reach this machine"
        )
    listeners = listening.under(host, interface=settings.interface, one_host=False)
    here_alone = addresses.leads_here_alone(host)
    if here_alone:
        listeners = tuple(each for each in listeners if addresses.is_loopback(each))
    secret = wanted.secret or (before.served.secret if before else None)
    if secret is None and not here_alone:
        raise UsageError(
            f"--listen {wanted.address}: a coordinator to which other machines may come needs a secret\n"
            "hint: give it and all ranks one HOCKET_SECRET, such as `openssl rand -hex 32` prints, or it a --secret-file"
        )
    return Place(host=host, listeners=listeners, secret=secret or secrets.token_hex(32), port=port)


def _about_secret(wanted: Wanted) -> str:
    return (
        ", and find its secret by themselves, as your processes on this machine"
        if wanted.secret is None
        else ""
    )


def _until_the_end(
    entrance: Entrance, server: Server, signals: list[int], wanted: Wanted, *, again: bool
) -> str | None:
    """Wait until the job is over or this process is told to end. Return why the job must be ended, or None."""
    deadline_s = time.monotonic() + wanted.wait_s
    while not (again or entrance.coordination.roster.founded or signals or server.failure is not None):
        if time.monotonic() > deadline_s:
            come = entrance.present
            if entrance.begun:
                return f"training has not begun within {wanted.wait_s:g} s, though {wanted.founders} ranks have come"
            return (
                f"{len(come)} of {wanted.founders} ranks have come within {wanted.wait_s:g} s"
                f"{': ' if come else ''}{', '.join(come)}"
            )
        time.sleep(TICK_S)
    if again:
        log.warning("the ranks of %s have %g s to come back", wanted.journal, COME_BACK_S)
    patience_s = LOST_S if wanted.journal is None else COME_BACK_S
    if not until_over(lambda: entrance.coordination, server, signals, patience_s):
        return None
    return "no rank is left that has the model's state"


def secret_in(path: Path) -> str:
    """Return the secret in a file, in hexadecimal. UsageError: there is none."""
    try:
        return checked_secret(path.read_text().strip(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not hexadecimal\nhint: {MAKE_ONE}") from None


def checked_secret(text: str, where: str) -> str:
    """Return the secret. UsageError: it is not hexadecimal, or too short; its value is not printed."""
    try:
        size = len(bytes.fromhex(text))
    except ValueError:
        raise UsageError(f"{where} is not hexadecimal\nhint: {MAKE_ONE}") from None
    if size < SECRET_BYTES_MIN:
        raise UsageError(f"{where} has {size} bytes: it needs {SECRET_BYTES_MIN}\nhint: {MAKE_ONE}")
    return text

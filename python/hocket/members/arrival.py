"""Arrival of a process that no launcher numbers at the coordinator of its elastic job, which gives it its place (`entrance`)."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from hocket import __version__
from hocket.errors import Error, RendezvousError, UsageError
from hocket.job.host import Host
from hocket.job.store import address as addresses
from hocket.job.store import frames
from hocket.job.store.channel import Channel
from hocket.job.store.sought import COORDINATOR
from hocket.job.store.store import connect
from hocket.members.place_messages import Arrives, Place, Refuses, Waits, read_answer
from hocket.settings import Settings

OF_THE_JOB = (
    "timeout_s",
    "heartbeat_timeout_s",
    "rejoin_timeout_s",
    "coordinator_timeout_s",
    "on_refusal",
)
"""Settings in which ranks follow their coordinator."""
NOTICE_CODE = 128 + signal.SIGTERM
"""Exit code of a process that ends because of a SIGTERM: whatever has started it may have to start it again."""
SEND_TIMEOUT_S = 10.0
AGAIN_S = 0.5
"""Pause before a process comes again to a coordinator that has ended, or to its successor."""
SAY_S = 10.0
"""Time between log lines that say this process still waits."""

log = logging.getLogger("hocket.membership")


class Connection(NamedTuple):
    """Connection by which this process has come, and what it has received of a further message. `secret`: the job's."""

    channel: Channel
    received: frames.Frames
    secret: str


class Arrival:
    """Source of this process's place: a coordinator, by a connection on which it goes on as a member, or its launcher."""

    def __init__(self, place: Place | None = None, connection: Connection | None = None) -> None:
        """Give both, or, if the launcher has given this process its place, neither."""
        self.connection = connection
        self._place = place

    @property
    def environment(self) -> Mapping[str, str] | None:
        """Variables by which a launcher numbers this process, None: all. They mean nothing to a coordinator."""
        return None if self._place is None else {}

    @property
    def job(self) -> str | None:
        """Job in which a coordinator has given this process its place."""
        return None if self._place is None else self._place.job

    def close(self) -> None:
        """End the connection; idempotent."""
        if self.connection is not None:
            self.connection.channel.close()

    def placed(self, settings: Settings) -> Settings:
        """Return settings as a launcher would have given them to this process, which has come with these."""
        place = self._place
        if place is None or self.connection is None:
            return settings
        given = Settings.from_environment(place.settings)
        here = dataclasses.replace(
            settings,
            **{name: getattr(given, name) for name in OF_THE_JOB},
            tls=settings.tls or given.tls,
            secret=self.connection.secret,
            rank=place.rank,
            world=place.world,
            local_rank=None,
            local_world=None,
            store=place.store,
            store_served=place.rank is not None,
            member=None,
            notice_code=NOTICE_CODE if settings.notice_code is None else settings.notice_code,
        )
        if place.rank is not None:
            return here
        # Whoever joins gets the job's plan, and has no part in the trace of its start.
        return dataclasses.replace(here, joins=True, plan=None, cluster=None, tuning=None, trace=None)


def shared(settings: Settings) -> dict[str, str]:
    """Return, as variables, the settings of a coordinator that its ranks follow."""
    return Settings(**{name: getattr(settings, name) for name in (*OF_THE_JOB, "tls")}).to_environment()


def comes(settings: Settings) -> bool:
    """Return whether a process with these settings gets its place from a coordinator: no launcher has given it one."""
    return settings.coordinator is not None and settings.rank is None and not settings.joins


def arrive(settings: Settings, own_secret: Callable[[str], str | None]) -> Arrival:
    """Come to the job's coordinator, and wait for a place, unless a launcher has given one. `own_secret`: returns the secret of the
    coordinator at an address, if it is this user's and on this machine.

    UsageError: there is no secret, or a setting needs ranks that a launcher starts. RendezvousError: the coordinator cannot be
    reached, knows another secret, refuses, or has no place in time.
    """
    address = settings.coordinator
    if address is None or not comes(settings):
        return Arrival()
    host, _ = addresses.split(address, variable="HOCKET_COORDINATOR")
    if settings.profile_out is not None:
        raise UsageError(
            "HOCKET_PROFILE_OUT: a job whose ranks come to a coordinator is not profiled\n"
            "hint: profile the script by `hocket profile`, or under `hocket run`"
        )
    here_alone = addresses.leads_here_alone(host)
    secret = settings.secret
    deadline_s = time.monotonic() + (settings.start_timeout_s if here_alone else 0.0)
    while secret is None and (secret := own_secret(address)) is None:
        if time.monotonic() > deadline_s:
            raise _without_secret(address, settings.start_timeout_s if here_alone else None)
        time.sleep(AGAIN_S)
    return _Guest(settings, address, secret).placed()


def _without_secret(address: str, waited_s: float | None) -> Error:
    if waited_s is not None:
        return RendezvousError(
            f"no coordinator of yours is at {address} on this machine (looked for {waited_s:.0f} s)\nhint: {COORDINATOR.absent}; "
            "HOCKET_SECRET leads to one of another user or container"
        )
    return UsageError(
        f"HOCKET_COORDINATOR={address}, without the HOCKET_SECRET of that job\n"
        "hint: give all ranks the secret of `hocket coordinator`; docs/secrets.md has the way for each launcher"
    )


class _Guest:
    """Process that waits for its place."""

    def __init__(self, settings: Settings, address: str, secret: str) -> None:
        self._settings, self._address, self._secret = settings, address, secret
        self._waits = Waits(why="the coordinator has not answered", what="it must be there", founds=True)
        self._since_s = self._said_s = time.monotonic()

    def placed(self) -> Arrival:
        me = Arrives(host=Host.here(self._settings.host).name, process=os.getpid(), version=__version__)
        while True:
            left_s = self._deadline_s - time.monotonic()
            _, channel = connect(
                self._address, bytes.fromhex(self._secret), max(left_s, AGAIN_S), left_s, sought=COORDINATOR
            )
            received = frames.Frames()
            try:
                channel.send(frames.encode(msgspec.json.encode(me)), time.monotonic() + SEND_TIMEOUT_S)
                place = self._hear(channel, received)
                return Arrival(place, Connection(channel, received, self._secret))
            except ConnectionError as error:
                channel.close()
                if time.monotonic() + AGAIN_S > self._deadline_s:
                    raise RendezvousError(
                        f"the coordinator at {self._address} has ended before {me} had a place ({error})\n"
                        "hint: see what it printed"
                    ) from None
                time.sleep(AGAIN_S)
            except BaseException:
                channel.close()
                raise

    @property
    def _deadline_s(self) -> float:
        founds = self._waits.founds
        return self._since_s + (self._settings.start_timeout_s if founds else self._settings.timeout_s)

    def _hear(self, channel: Channel, received: frames.Frames) -> Place:
        while True:
            while (payload := received.poll()) is not None:
                match read_answer(payload):
                    case Place() as place:
                        return place
                    case Refuses(why=why):
                        raise RendezvousError(f"the coordinator at {self._address}: {why}")
                    case Waits() as waits:
                        if waits.founds != self._waits.founds:
                            self._since_s = time.monotonic()
                        self._waits = waits
            now_s = time.monotonic()
            if now_s > self._deadline_s:
                raise self._too_late()
            if now_s > self._said_s + SAY_S:
                self._said_s = now_s
                log.warning("waits for a place in the job of %s: %s", self._address, self._waits.why)
            received.feed(channel.arrived(1.0))

    def _too_late(self) -> RendezvousError:
        waits, me = self._waits, f"process {os.getpid()}"
        if waits.founds:
            return RendezvousError(
                f"the job of {self._address} has not begun within {self._settings.start_timeout_s:g} s after {me} had come: "
                f"{waits.why}; {waits.what}\n"
                "hint: start those that are missing; HOCKET_START_TIMEOUT_S waits longer for them"
            )
        return RendezvousError(
            f"the job of {self._address} is full: {waits.why}, and {self._settings.timeout_s:g} s after {me} had come, "
            f"{waits.what}\nhint: `--elastic` of its coordinator says how many there may be; HOCKET_TIMEOUT_S waits longer"
        )

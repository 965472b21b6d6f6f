"""Services of an elastic job beside its founders' store: the coordinator, and the entry by which others find the job."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hocket.job.store import address as addresses
from hocket.job.store.server import Server
from hocket.members import arrival
from hocket.members.coordination import Coordination
from hocket.members.entrance import Entrance
from hocket.members.journal import Journal, Served
from hocket.members.member_limits import Limits
from hocket.members.stores import Stores
from hocket.settings import Settings
from hocket.start.live import LiveGoodput
from hocket.start.processes import ProcessSpec
from hocket.start.replacements import numbers
from hocket.start.running import RunningJob, announced

COORDINATOR_TIMEOUT_S = 300.0
"""Time that ranks train on without a launcher that keeps a journal."""
REJOIN_TIMEOUT_S = 300.0
"""Time that a job with too few ranks waits for those that its launcher starts in the place of lost ones."""


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """Services of an elastic job. `settings`: of its ranks, with the coordinator's address. `job`: lets others join."""

    coordination: Coordination
    coordinator: Server
    stores: Stores
    job: RunningJob
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class Place:
    """Address of a coordinator: `host` is this machine's name as ranks reach it, at `listeners`; `port` 0: a free one."""

    host: str
    listeners: Sequence[str]
    secret: str
    port: int = 0

    def stores(self, stack: contextlib.ExitStack, settings: Settings) -> Stores:
        """Return stores at which members meet, open until the stack ends."""
        stores = Stores(self.host, self.listeners, bytes.fromhex(self.secret), settings.port_range)
        stack.callback(stores.close)
        return stores

    def server(self, stack: contextlib.ExitStack, entrance: Entrance, settings: Settings) -> Server:
        """Serve until the stack ends. RendezvousError: the port is taken, or none is free."""
        server = Server(
            self.listeners,
            self.port,
            bytes.fromhex(self.secret),
            entrance,
            ports=settings.port_range,
            elsewhere="give --listen another ADDRESS:PORT of this machine; port 0 is a free one, which is printed",
        )
        if settings.silence_by_path(elastic=True):
            entrance.watch(server.tcp_info)
        return stack.enter_context(server)


def timed(settings: Settings, *, respawn: int, journal: Path | None) -> Settings:
    """Return settings with the times that an elastic job has by default."""
    rejoin_s = settings.rejoin_timeout_s
    if rejoin_s is None and respawn:
        rejoin_s = REJOIN_TIMEOUT_S
    return dataclasses.replace(
        settings,
        rejoin_timeout_s=rejoin_s,
        coordinator_timeout_s=None
        if journal is None
        else settings.coordinator_timeout_s or COORDINATOR_TIMEOUT_S,
    )


def serve(
    stack: contextlib.ExitStack,
    processes: Sequence[ProcessSpec],
    settings: Settings,
    *,
    host: str,
    listeners: Sequence[str],
    secret: str,
    members_min: int,
    members_max: int,
    respawn: int,
    journal: Path | None,
) -> Elastic:
    """Serve until the stack ends. `host`: this machine's name as ranks reach it, at `listeners`; other arguments as in `launch`.

    RendezvousError: no port is free. UsageError: there is a journal already, or it cannot be written.
    """
    settings = timed(settings, respawn=respawn, journal=journal)
    place = Place(host=host, listeners=listeners, secret=secret)
    stores = place.stores(stack, settings)
    kept = numbers(len(processes), respawn)
    limits = Limits.of(settings, members_min, members_max)
    coordination = Coordination(len(processes), limits, stores, kept)
    coordination.changes.take_down_in(settings.trace, begins=True)
    stack.callback(coordination.changes.end)
    entrance = Entrance(
        lambda: coordination, stores, arrival.shared(settings), founders=len(processes), begun=True
    )
    coordinator = place.server(stack, entrance, settings)
    stores.goodput = LiveGoodput(lambda: coordination, coordinator)
    where = addresses.join(host, coordinator.port)
    settings = dataclasses.replace(settings, coordinator=where)
    job = stack.enter_context(announced(where, secret, processes[0].argv, settings))
    if journal is not None:
        served = Served(
            host=host,
            coordinator=where,
            secret=secret,
            command=tuple(processes[0].argv),
            settings=settings.to_environment(),
            members_min=members_min,
            members_max=members_max,
            replacements=(kept.start, kept.stop),
        )
        written = Journal.create(journal, served, coordination.generation())
        stack.callback(written.close, done=True)
        coordination.journal = written
    return Elastic(
        coordination=coordination, coordinator=coordinator, stores=stores, job=job, settings=settings
    )

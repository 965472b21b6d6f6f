"""Rendezvous that makes processes a job: they meet at the store, agree on settings, exchange addresses, and connect the wire.

It knows nothing of frameworks: where a launcher brings its own store (torchrun), the caller passes a function that publishes an
address there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hocket import __version__, _native, logs, typed
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.errors import Error, RendezvousError
from hocket.job import alike, emulated_links, relays, secrecy
from hocket.job import alone as unnumbered
from hocket.job import at_exit as ending
from hocket.job.cause import cause_of
from hocket.job.dumps.failing import Failing
from hocket.job.environment import NO_LAUNCHER, Identity, identify
from hocket.job.host import Host, job_names
from hocket.job.live.progress import Progress
from hocket.job.meeting import Publish, meet
from hocket.job.paths import Paths
from hocket.job.reports import Reports
from hocket.job.store import address as addresses
from hocket.job.store import interfaces
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from hocket.settings import Settings
from hocket.spellings import bounds_of

log = logging.getLogger("hocket.job")

SECRET_BYTES = 32
LINGER_S = 5.0
"""Time that rank 0 keeps its store for ranks that have not left yet."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Data that each rank publishes about itself when they meet.

    `host` is its host's name; `place`, `identity` and `clock` are as in `Host`; `networks` are its addresses with their prefixes;
    `settings` must be equal on all ranks; `program` and `arguments` are its script and a digest of arguments. `session` of rank 0
    identifies the job.
    """

    host: str
    place: str
    identity: str
    clock: str
    process: int
    version: str
    address: str
    networks: tuple[str, ...]
    session: str
    settings: dict[str, str] = {}
    program: str = ""
    arguments: str = ""


@dataclass(kw_only=True, eq=False)
class Job:
    """This process as one rank of a job whose ranks have met. Close it, or use it as a context.

    Attributes:
        rank, world: this rank, and the number of ranks.
        local_rank, local_world: position among the ranks of this host, and their number.
        host: name of this host, unique in the job; `hosts`: names of all ranks' hosts, by rank.
        name: equal on all ranks, different for every job.
        secret: the job's secret.
        store: for values that ranks share while they set up.
        bind: the IP address that this rank's wire binds to.
        addresses: addresses of this host for the wire: one per interface that it uses.
        clocks: by rank, the lowest rank that shares its monotonic clock.
        members: by rank, numbers that processes of an elastic job keep while ranks change: a founder's is its rank at the start.
        progress: what this rank does, for observers.
        relays: pairs of ranks that cannot reach each other, and the ranks between them, as the engine has them.
        failing: what writes dumps when the job fails, if that is set.
    """

    rank: int
    world: int
    local_rank: int
    local_world: int
    host: str
    hosts: tuple[str, ...]
    name: str
    secret: bytes = field(repr=False)
    store: Store
    addresses: tuple[str, ...]
    clocks: tuple[int, ...]
    settings: Settings = field(repr=False)
    server: Server | None = field(default=None, repr=False)
    members: tuple[int, ...] = ()
    relays: relays.Relays = field(default_factory=relays.Relays, repr=False)
    progress: Progress = field(default_factory=Progress, repr=False)
    reports: Reports | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Number members by rank, unless given."""
        self.members = self.members or tuple(range(self.world))

    def engine(
        self,
        *,
        threads: int | None = None,
        trace: str | os.PathLike[str] | None = None,
        elastic: bool = False,
        connect_timeout_s: float | None = None,
    ) -> _native.Engine:
        """Create this rank's engine, connected to all others; every rank must call it.

        Args:
            threads: native threads; default `settings.threads`.
            trace: directory for `rank-N.hktrace`, created if missing; default `settings.trace`.
            elastic: a lost rank ends the epoch of members, not the job; alike on all ranks.
            connect_timeout_s: longest wait for connections once all ranks are there; default `settings.start_timeout_s`.

        Raises:
            RendezvousError: ranks are missing, or cannot be reached.
        """
        directory = trace or self.settings.trace
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        engine = _native.Engine(
            rank=self.rank,
            world=self.world,
            job=self.name,
            secret=self.secret,
            host=self.host,
            bind=self.addresses,
            ports=self.settings.port_range,
            threads=threads or self.settings.threads,
            trace=None if directory is None else str(Path(directory) / f"rank-{self.rank}.hktrace"),
            trace_steps=self._traced_steps(),
            trace_bytes=self.settings.trace_bytes,
            checksum=self.settings.checksums,
            tls=self.settings.tls,
            wire=self.settings.wire,
            heartbeat_timeout_s=self.settings.silence_max_s(elastic=elastic),
            silence_by_path=self.settings.silence_by_path(elastic=elastic),
            elastic=elastic,
            emulated_links=None
            if self.settings.emulated_links is None
            else emulated_links.read(Path(self.settings.emulated_links), self.host, self.hosts),
        )
        timeout_s = self.settings.start_timeout_s
        try:
            # Both ends of a pair must use the same number: what rank 0 was told or measured.
            mine = (engine.addresses, self.host, self._streams() if self.rank == 0 else None)
            peers = self.store.gather("engine", self.rank, self.world, mine, timeout_s)
            streams = peers[0][2][self.rank]
            connect_s = timeout_s if connect_timeout_s is None else connect_timeout_s
            engine.connect(
                [(where, host) for where, host, _ in peers], connect_s, streams, relays.agree(self, connect_s)
            )
        except BaseException:
            engine.close()
            raise
        self.relays.engine = engine
        log.info("rank %d listens at %s, and is connected", self.rank, ", ".join(engine.addresses))
        Paths(engine, self.hosts).tell()
        if self.rank == 0:
            relays.tell(self, engine)
        # Lost ranks of an elastic job have no place in the epoch in force; the others keep their numbers.
        self.progress.bytes_sent = lambda: dict(zip(engine.members, engine.bytes_sent(), strict=False))
        return engine

    def publish(self, generation: int = 0, *, later: bool = False) -> None:
        """Report from now on how this rank gets on, where others may look. `generation`: see `LiveJob`; `later`: until `reports`
        begin, there are only dumps. Errors: as `Reports`."""
        self.reports = Reports(self, generation)
        if not later:
            self.reports.begin(self)

    def publish_no_more(self) -> None:
        """End the reports, and forget the engine; idempotent."""
        if self.reports is not None:
            self.reports.close()
        self.progress.bytes_sent = None
        self.relays.engine = None

    @property
    def failing(self) -> Failing | None:
        """Dumps of this rank, if they are asked for."""
        return None if self.reports is None else self.reports.failing

    @property
    def elastic(self) -> bool:
        """True if the job goes on without ranks that it loses."""
        return self.settings.coordinator is not None

    @property
    def bind(self) -> str:
        """Address of this host for others; the first, if the wire uses several."""
        return self.addresses[0]

    def _traced_steps(self) -> tuple[int, int | None]:
        """Return the steps to trace. Ranks that do not train have no steps, and record everything."""
        steps = self.settings.trace_steps
        if steps is None or self.rank >= self.world - self.settings.besides:
            return 0, None
        return bounds_of(steps)

    def _streams(self) -> list[list[int]]:
        """Return the number of connections between each two ranks per pair of interfaces: as set, else as measured, else 0: as the
        path needs."""
        if self.settings.streams is not None or self.settings.cluster is None:
            return [[self.settings.streams or 0] * self.world] * self.world
        cluster = files.read(Path(self.settings.cluster), Cluster)
        place = {host.name: index for index, host in enumerate(cluster.hosts)} if cluster.streams else {}

        def between(one: str, other: str) -> int:
            return cluster.streams[place[one]][place[other]] if one in place and other in place else 0

        return [[between(one, other) for other in self.hosts] for one in self.hosts]

    def among(self, members: Sequence[int]) -> Job:
        """Return the job as this rank sees it when only these ranks of it, in the order of their new ranks, go on."""
        clocks = [self.clocks[member] for member in members]
        hosts = tuple(self.hosts[member] for member in members)
        rank = members.index(self.rank)
        here = [at for at, host in enumerate(hosts) if host == self.host]
        return dataclasses.replace(
            self,
            rank=rank,
            world=len(members),
            local_rank=here.index(rank),
            local_world=len(here),
            hosts=hosts,
            clocks=tuple(clocks.index(each) for each in clocks),
            members=tuple(self.members[member] for member in members),
        )

    def close(
        self,
        reason: str | None = None,
        cause: tuple[int, str] | None = None,
        *,
        linger_s: float = LINGER_S,
    ) -> None:
        """Leave the job; a reason is passed to ranks that wait at the store. `cause`: see `Store.leave`. Idempotent.

        `linger_s`: how long a store that this rank serves stays for others.
        """
        self.publish_no_more()
        self.store.leave(reason, cause)
        if self.server is not None:
            # The rank at fault may never leave.
            self.server.close(linger_s if cause is None else min(linger_s, ending.LINGER_S), self.world)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Leave, with the error as the reason if there is one."""
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            self.close(f"{type(error).__name__}: {error}", cause_of(error, self.rank))


def join(
    settings: Settings | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    publish: Publish | None = None,
    known_secret: bytes | None = None,
) -> Job:
    """Join the other ranks of this process's job; without a launcher, a job of one rank.

    Args:
        settings: default: from the environment.
        environment: variables of the launcher; default `os.environ`.
        publish: distributes the store's address under a launcher with a store of its own (torchrun).
        known_secret: replaces a derived secret by one that is unique to this job but may be public.

    Raises:
        RendezvousError: within `settings.start_timeout_s`, on every rank: ranks are missing, or disagree.
        UsageError: variables contradict each other; TLS without a secret; bounds of a trace that is not written.

    >>> with join(environment={}) as job:
    ...     job.rank, job.world, job.clocks
    (0, 1, (0,))
    """
    environment = os.environ if environment is None else environment
    settings = settings or Settings.from_environment(environment)
    settings.refuse_bounds_of_nothing()
    logs.apply(settings.log)
    me = identify({**environment, **settings.to_environment()}, parent=os.getppid())
    if me.launcher == NO_LAUNCHER and (alone := unnumbered.warning(environment)) is not None:
        log.warning("hocket: %s", alone)
    if not me.private and me.world == 1:
        me = dataclasses.replace(me, secret=secrets.token_bytes(SECRET_BYTES), private=True)
    if not me.private and known_secret is not None:
        me = dataclasses.replace(me, secret=known_secret)
    secrecy.check_secret(me, settings)
    host = Host.here(settings.host)
    deadline_s = time.monotonic() + settings.start_timeout_s
    with contextlib.ExitStack() as undo:
        server, address = meet(me, host, settings, publish)
        if server is not None:
            undo.callback(server.close, LINGER_S, me.world)
        store = Store(
            address,
            me.secret,
            rank=me.rank,
            who=f"rank {me.rank} on {host.name} (process {os.getpid()})",
            timeout_s=settings.start_timeout_s,
            patience_s=None if me.meeting.served or me.meeting.address is None else settings.start_timeout_s,
        )
        undo.callback(store.leave)
        try:
            members = _introduce(me, host, store, deadline_s, settings)
            _agree(members)
            # A known secret is unique to this job.
            if not me.private and known_secret is None:
                alike.check_programs(
                    [each.program for each in members],
                    [each.arguments for each in members],
                    [each.host for each in members],
                    trains=me.world - settings.besides,
                    rank=me.rank,
                )
            own = _addresses(settings.interface, me.rank, members)
        except Error as error:
            store.leave(error.summary, cause_of(error, me.rank))
            raise
        undo.pop_all()
    hosts = tuple(member.host for member in members)
    clocks = [member.clock for member in members]
    here = [rank for rank, each in enumerate(hosts) if each == hosts[me.rank]]
    log.info("rank %d of %d on %s has met the others at %s", me.rank, me.world, hosts[me.rank], address)
    return Job(
        rank=me.rank,
        world=me.world,
        local_rank=here.index(me.rank) if me.local_rank is None else me.local_rank,
        local_world=len(here),
        host=hosts[me.rank],
        hosts=hosts,
        name=members[0].session,
        secret=me.secret,
        store=store,
        addresses=own,
        clocks=tuple(clocks.index(each) for each in clocks),
        settings=settings,
        server=server,
    )


def _introduce(
    me: Identity, host: Host, store: Store, deadline_s: float, settings: Settings
) -> tuple[Member, ...]:
    mine = Member(
        host=host.name,
        place=host.place,
        identity=host.identity,
        clock=host.clock,
        process=os.getpid(),
        version=__version__,
        address=store.local_address,
        networks=tuple(address for _, address in interfaces.here()),
        session=secrets.token_hex(8),
        settings=alike.shared(settings),
        program=Path(sys.argv[0]).name,
        arguments=alike.arguments(sys.argv[1:], me.rank),
    )
    try:
        given = store.gather("join", me.rank, me.world, mine, max(0.0, deadline_s - time.monotonic()))
    except RendezvousError as error:
        raise error.reworded(
            f"{error}\nhint: this is rank {me.rank} of {me.world}, started by {me.launcher}"
        ) from None
    members = typed.of_builtins(given, list[Member])
    names = job_names([member.host for member in members], [member.identity for member in members])
    return tuple(
        msgspec.structs.replace(member, host=name) for member, name in zip(members, names, strict=True)
    )


def _agree(members: Sequence[Member]) -> None:
    for rank, member in enumerate(members):
        if member.version != members[0].version:
            raise RendezvousError(
                f"rank {rank} on {member.host} runs Hocket {member.version}, "
                f"rank 0 on {members[0].host} runs {members[0].version}\n"
                "hint: install the same version everywhere",
                rank=rank,
                host=member.host,
            )
    alike.check([member.settings for member in members], [member.host for member in members])


def _addresses(interface: str | None, rank: int, members: Sequence[Member]) -> tuple[str, ...]:
    """Return this host's addresses for the wire."""
    if interface is None:
        return (_bind(rank, members),)
    if interface != interfaces.ALL:
        return interfaces.chosen(interface)
    if all(member.place == members[rank].place for member in members):
        return (addresses.LOOPBACK,)
    shared = interfaces.common(members[rank].networks, [member.networks for member in members])
    return shared or (_bind(rank, members),)


def _bind(rank: int, members: Sequence[Member]) -> str:
    """Return loopback if all ranks are here; otherwise the address on the route to the store, or else to a peer."""
    mine = members[rank]
    if all(member.place == mine.place for member in members):
        return addresses.LOOPBACK
    if not addresses.is_loopback(mine.address):
        return mine.address
    for member in members:
        if member.place != mine.place and not addresses.is_loopback(member.address):
            towards = addresses.towards(member.address)
            if towards is not None and not addresses.is_loopback(towards):
                return towards
    raise RendezvousError(
        f"rank {rank} on {mine.host} knows no address of its own that other hosts could reach\n"
        "hint: set HOCKET_INTERFACE on that host to the interface or address that leads to the others",
        rank=rank,
        host=mine.host,
    )

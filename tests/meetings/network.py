"""The simulated network of an elastic job: connections to its launcher, the launcher itself, and its stores.

The coordinator is the real one, and so is a member's end of its connection. Messages take a random time, in order on each
connection. A host that is cut off sends and gets nothing until it is connected again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from hocket.errors import RendezvousError, StoreGoneError
from hocket.job.store import frames
from hocket.job.store.frames import FrameError
from hocket.members.coordination import Coordination
from hocket.members.journal import Generation, Served
from hocket.members.member_limits import Limits
from tests.meetings.clockwork import Clockwork, Condition, Process

log = logging.getLogger(__name__)

DELAY_S = 0.002
"""Of a message, at most."""
INSTANT_S = 1e-6
"""Between two messages on a connection, at least."""
END_S = 0.02
"""How long the other end of a connection may take to hear that it has ended."""
LOOK_S = 0.1
"""The same of a launcher about a process that it has started."""


class Worker(Process):
    """A process of the job.

    Attributes:
        name: for people.
        host: where it runs.
        started_by: the launcher that has; None: somebody else.
        cut: its host is cut off.
        hangs: its script does, and other threads go on.
        code: with which it has ended.
        member: its number; negative: none yet.
    """

    def __init__(self, name: str, host: str, started_by: Launcher | None) -> None:
        super().__init__()
        self.name, self.host, self.started_by = name, host, started_by
        self.cut = self.hangs = False
        self.code: int | None = None
        self.member = -1
        self.ended: list[Callable[[], object]] = []
        """What follows when it ends."""
        self.held: list[Callable[[], object]] = []
        """What would have come to it, or from it, while it is cut off."""

    def end(self, code: int) -> None:
        if self.dead:
            return
        self.dead, self.code = True, code
        for each in self.ended:
            each()


class MemoryJournal:
    """As `Journal`, and nothing survives but what was written. `writes`: called before and after each time."""

    path = "the journal"

    def __init__(self, served: Served, generation: Generation, writes: Callable[[], object]) -> None:
        self.served, self.generation, self.records = served, generation, b""
        self._writes = writes

    def append(self, record: bytes) -> None:
        self._writes()
        self.records += record
        self._writes()

    def change(self, generation: Generation) -> None:
        self._writes()
        if generation.number != self.generation.number:
            self.records = b""
        self.generation = generation
        self._writes()


class Connection:
    """Of a worker with a launcher; a `Channel` for the worker."""

    def __init__(self, work: Clockwork, worker: Worker, launcher: Launcher, client: int) -> None:
        self._work, self._worker, self._launcher, self.client = work, worker, launcher, client
        self._there_s = self._here_s = work.now_s
        self._inbox = b""
        self._ended = self._closed = False
        self._changed = Condition(work)
        self.frames = frames.Frames()

    def send(self, data: bytes, deadline_s: float) -> None:
        del deadline_s
        if self._closed or self._ended:
            raise ConnectionResetError("it is closed")
        self._carry(lambda: self._launcher.receive(self, data), to_launcher=True)

    def arrived(self, timeout_s: float) -> bytes:
        if not (self._inbox or self._ended or self._closed):
            self._changed.wait(timeout_s)
        data, self._inbox = self._inbox, b""
        if not data and (self._ended or self._closed):
            raise ConnectionAbortedError("it closed the connection")
        return data

    def close(self) -> None:
        """As `Channel`; idempotent. So does the end of the process."""
        if not self._closed:
            self._closed = True
            self._carry(lambda: self._launcher.drop(self), to_launcher=True)

    def deliver(self, data: bytes) -> None:
        self._carry(lambda: self._take(data), to_launcher=False)

    def hang_up(self) -> None:
        self._carry(self._take_end, to_launcher=False)

    def _take(self, data: bytes) -> None:
        self._inbox += data
        self._changed.notify_all()

    def _take_end(self) -> None:
        self._ended = True
        self._changed.notify_all()

    def _carry(self, do: Callable[[], object], *, to_launcher: bool) -> None:
        at_s = self._work.now_s + self._work.random.uniform(0, DELAY_S)
        if to_launcher:
            at_s = self._there_s = max(at_s, self._there_s + INSTANT_S)
        else:
            at_s = self._here_s = max(at_s, self._here_s + INSTANT_S)
        self._work.after(at_s - self._work.now_s, lambda: self._pass(do))

    def _pass(self, do: Callable[[], object]) -> None:
        if self._worker.cut:
            self._worker.held.append(do)
        else:
            do()


class LauncherDied(Exception):  # noqa: N818  # what a fault is called
    """In the middle of something."""


class Launcher:
    """Serves a coordinator, and starts the founders. `journal` None: it is the first.

    Attributes:
        alive: it has not been killed.
    """

    def __init__(
        self, network: Network, limits: Limits, founders: int, journal: MemoryJournal | None
    ) -> None:
        self._network, self._work = network, network.work
        self.alive = True
        self.stores = Stores(network)
        self._connections: dict[int, Connection] = {}
        stores: Any = self.stores
        if journal is None:
            self.coordination = Coordination(founders, limits, stores)
            served = Served(
                host="", coordinator="", secret="", command=(), settings={}, members_min=1, members_max=8
            )
            journal = MemoryJournal(served, self.coordination.generation(), network.writes)
            kept: Any = journal
            self.coordination.journal = kept
        else:
            kept = journal
            self.coordination = Coordination.restored(kept, limits, stores)
        self.journal = journal
        self._tick()

    def connect(self, worker: Worker) -> Connection:
        self._network.clients += 1
        made = Connection(self._work, worker, self, self._network.clients)
        self._connections[made.client] = made
        worker.ended.append(made.close)
        return made

    def receive(self, connection: Connection, data: bytes) -> None:
        if not self.alive or connection.client not in self._connections:
            return
        connection.frames.feed(data)
        while (payload := connection.frames.poll()) is not None:
            self._network.handles()
            self._do(lambda each=payload: self._receive(connection, each))

    def drop(self, connection: Connection) -> None:
        if self.alive and self._connections.pop(connection.client, None) is not None:
            self._do(lambda: self.coordination.disconnect(connection.client))

    def has_ended(self, worker: Worker) -> None:
        if self.alive and worker.code != 0:
            self._do(lambda: self.coordination.gone(worker.member))

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            self.stores.end()
            for each in self._connections.values():
                self._work.after(self._work.random.uniform(0, END_S), each.hang_up)

    def _receive(self, connection: Connection, payload: bytes) -> None:
        try:
            self.coordination.receive(connection.client, payload, round(self._work.now_s * 1e9))
        except FrameError as error:
            log.info("client %d is dropped: %s", connection.client, error)
            self._connections.pop(connection.client, None)
            self.coordination.disconnect(connection.client)
            connection.hang_up()

    def _tick(self) -> None:
        if self.alive:
            self._do(lambda: self.coordination.expire(round(self._work.now_s * 1e9)))
            deadline_ns = self.coordination.deadline_ns()
            if deadline_ns is not None:
                self._work.after(max(0.001, deadline_ns * 1e-9 - self._work.now_s), self._tick)

    def _do(self, do: Callable[[], object]) -> None:
        if not self.alive:
            return
        try:
            do()
        except LauncherDied:
            self.kill()
            return
        for client, payload in self.coordination.answers():
            if client in self._connections:
                self._connections[client].deliver(frames.encode(payload))
        for member, _ in self.coordination.condemned.take():
            self._network.condemn(member, self)


class Network:
    """What the processes of a job share.

    Attributes:
        launcher: the newest.
        workers: all that have been started.
        handles: called whenever a launcher takes a message.
        writes: called before and after its journal is written; may raise LauncherDied.
    """

    def __init__(
        self,
        work: Clockwork,
        limits: Limits,
        founders: int,
        *,
        handles: Callable[[], object],
        writes: Callable[[], object],
    ) -> None:
        self.work, self.limits = work, limits
        self.clients = 0
        self.workers: list[Worker] = []
        self.handles, self.writes = handles, writes
        self.stores: dict[str, Store] = {}
        self.launcher = Launcher(self, limits, founders, None)

    def connect(self, worker: Worker) -> Connection | None:
        return self.launcher.connect(worker) if self.launcher.alive else None

    def resume(self) -> None:
        """Another launcher goes on, if the job does."""
        if not self.launcher.coordination.roster.over:
            journal = self.launcher.journal
            if journal.generation.number > 0 or journal.records:
                self.launcher = Launcher(self, self.limits, 0, journal)

    def condemn(self, member: int, by: Launcher) -> None:
        """A launcher kills that member, if it has started it."""
        for each in self.workers:
            if each.member == member and each.started_by is by:
                self.work.after(self.work.random.uniform(0, LOOK_S), lambda each=each: each.end(137))


class Store:
    def __init__(self, network: Network) -> None:
        self._work = network.work
        self._values: dict[str, dict[int, object]] = {}
        self._lost: set[int] = set()
        self._ended = False
        self._changed = Condition(network.work)

    def enter(self, rank: int, worker: Worker) -> None:
        """That worker is the rank, as long as it lives."""
        if not self._ended:
            self._lost.discard(rank)
            worker.ended.append(
                lambda: self._work.after(self._work.random.uniform(0, END_S), lambda: self.lose(rank))
            )

    def lose(self, rank: int) -> None:
        self._lost.add(rank)
        self._changed.notify_all()

    def end(self) -> None:
        self._ended = True
        self._changed.notify_all()

    def gather(self, name: str, rank: int, world: int, value: object, timeout_s: float) -> list[Any]:
        """All ranks' values. StoreGoneError, RendezvousError: as `Store.gather`."""
        given = self._values.setdefault(name, {})
        given[rank] = value
        self._changed.notify_all()
        until_s = self._work.now_s + timeout_s
        self._work.pause(self._work.random.uniform(0, DELAY_S))
        while len(given) < world:
            if self._ended:
                raise StoreGoneError("the store is gone")
            lost = [each for each in range(world) if each in self._lost and each not in given]
            if lost:
                raise RendezvousError(f"rank {lost[0]} is lost in {name}", rank=lost[0])
            if self._work.now_s >= until_s:
                missing = [each for each in range(world) if each not in given]
                raise RendezvousError(f"ranks {missing} did not come to {name}", missing=missing)
            self._changed.wait(until_s - self._work.now_s)
        return [given[each] for each in range(world)]


class Stores:
    def __init__(self, network: Network) -> None:
        """None is open."""
        self._network = network
        self._open: list[Store] = []
        self._beside: Store | None = None

    def another(self) -> str:
        name = self._opened()
        self._open.append(self._network.stores[name])
        return name

    def beside(self) -> str:
        self.give_up_beside()
        name = self._opened()
        self._beside = self._network.stores[name]
        return name

    def go_on_beside(self) -> None:
        assert self._beside is not None
        self._open.append(self._beside)
        self._beside = None

    def give_up_beside(self) -> None:
        if self._beside is not None:
            self._beside.end()
            self._beside = None

    def _opened(self) -> str:
        name = f"store {len(self._network.stores)}"
        self._network.stores[name] = Store(self._network)
        return name

    def refuse(self, rank: int, reason: str) -> None:
        del reason
        if self._open:
            self._open[-1].lose(rank)

    def end(self) -> None:
        self.give_up_beside()
        for each in self._open:
            each.end()


def hosts_of(workers: Sequence[Worker]) -> tuple[str, ...]:
    return tuple(each.host for each in workers)

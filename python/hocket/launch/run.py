"""Starts the ranks of a job, locally or remotely, and waits until all have ended; leaves nothing behind.

The launcher serves the store, creates the secret, shows the ranks' output, and finally reports which rank failed first
and how.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from hocket.errors import PeerError, RendezvousError, UsageError
from hocket.launch import address as addresses
from hocket.launch import listening, output
from hocket.launch.change_log import Ended
from hocket.launch.coordination import Coordination
from hocket.launch.journal import Journal, Served
from hocket.launch.ledger import Ledger
from hocket.launch.processes import SIGNALLED, SILENCE_S, Flow, Process, ProcessSpec, end_all
from hocket.launch.running import announced
from hocket.launch.server import Server
from hocket.launch.store import Store
from hocket.launch.stores import Stores
from hocket.launch.variables import variables
from hocket.settings import Settings

TICK_S = 0.02
REPORT_S = 10.0
"""After a rank failed, or Ctrl-C, the others have this long to report and to end by themselves."""
TERMINATE_S = 5.0
"""From SIGTERM to SIGKILL, and from there to the end of the leash."""
LAST_LINES_SHOWN = 8
COORDINATOR_TIMEOUT_S = 300.0
"""How long ranks train on without a launcher that keeps a journal."""
PUT_TIMEOUT_S = 10.0
"""Time-out for the launcher to reach its own store."""

log = logging.getLogger("hocket.run")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A rank that failed. `code` is 128 + N for signal N."""

    rank: int
    host: str
    code: int
    last_lines: tuple[str, ...]

    @property
    def how(self) -> str:
        """The exit code, or the signal."""
        if self.code > SIGNALLED:
            with contextlib.suppress(ValueError):
                return f"{signal.Signals(self.code - SIGNALLED).name} (exit code {self.code})"
        return f"exit code {self.code}"

    def __str__(self) -> str:
        """A description for people."""
        last_words = "".join(f"\n    {line}" for line in self.last_lines[-LAST_LINES_SHOWN:])
        return f"rank {self.rank} on {self.host} failed: {self.how}" + (
            f"; its last words:{last_words}" if last_words else ""
        )

    def error(self, message: str) -> PeerError:
        """The error of the whole job, ready to raise."""
        return PeerError(message, rank=self.rank, host=self.host, why="failed")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a job: `failures` in the order in which they were observed. `ended`: why an elastic job went on no more."""

    failures: tuple[Failure, ...]
    ended: Ended | None = None

    @property
    def code(self) -> int:
        """Exit code of the launcher: the first failure's; 1 for another end than that of the scripts, or 0."""
        return self.failures[0].code if self.failures else int(self.ended is not None)


def launch(
    processes: Sequence[ProcessSpec],
    *,
    settings: Settings | None = None,
    store: str | None = None,
    serve: bool = True,
    values: Mapping[str, Any] | None = None,
    quiet_others: bool = False,
    members_min: int | None = None,
    members_max: int | None = None,
    journal: Path | None = None,
    out: BinaryIO | None = None,
    err: BinaryIO | None = None,
) -> Outcome:
    """Start one process per rank, by rank, and wait for all.

    Args:
        processes: what to start.
        settings: passed to every rank, besides its identity; default: from the environment.
        store: `HOST:PORT` of the store as ranks reach it; default: loopback, a free port.
        serve: whether the launcher serves the store there; otherwise rank 0 does.
        values: initial values of the store, if the launcher serves it.
        quiet_others: show only the output of rank 0, unchanged.
        members_min: the job goes on without ranks that it loses while so many are left; None: it ends with the first. The launcher
            serves the store.
        members_max: so many ranks it may have when others join; default: as many as are started.
        journal: an elastic job keeps one there, from which `resume` goes on when this process has died; ranks go on meanwhile.
        out, err: targets of the output; default: this process's own.

    Raises:
        RendezvousError: the store's address is taken, or a command cannot be started.
        UsageError: there is a journal already, or it cannot be written.
        KeyboardInterrupt: Ctrl-C, after all ranks have ended. SIGTERM and SIGHUP: SystemExit.

    >>> import io
    >>> launch([ProcessSpec(argv=["true"])] * 2, out=io.BytesIO(), err=io.BytesIO()).code
    0
    """
    if not processes:
        raise UsageError("there is no rank to start")
    secret = secrets.token_hex(32)
    settings = dataclasses.replace(settings or Settings.from_environment(), coordinator=None, joins=False)
    patience_s = None if journal is None else settings.coordinator_timeout_s or COORDINATOR_TIMEOUT_S
    settings = dataclasses.replace(settings, coordinator_timeout_s=patience_s)
    services = _Services()
    with contextlib.ExitStack() as stack:
        if serve:
            host, port = addresses.split(store, variable="store") if store else (addresses.LOOPBACK, 0)
            listeners = listening.under(host, interface=settings.interface, one_host=False)
            services.store = stack.enter_context(
                Server(listeners, port, bytes.fromhex(secret), services.ledger)
            )
            store = addresses.join(host, services.store.port)
            if members_min is not None:
                stores = Stores(host, listeners, bytes.fromhex(secret))
                stack.callback(stores.close)
                services.coordination = Coordination(
                    len(processes),
                    members_min,
                    members_max or len(processes),
                    heartbeat_s=settings.silence_max_s(elastic=True),
                    join_patience_s=settings.timeout_s,
                    stores=stores,
                )
                services.coordinator = stack.enter_context(
                    Server(listeners, 0, bytes.fromhex(secret), services.coordination)
                )
                where = addresses.join(host, services.coordinator.port)
                settings = dataclasses.replace(settings, coordinator=where)
                stack.enter_context(announced(where, secret, processes[0].argv, settings))
                if journal is not None:
                    served = Served(
                        host=host,
                        coordinator=where,
                        secret=secret,
                        command=tuple(processes[0].argv),
                        settings=settings.to_environment(),
                        members_min=members_min,
                        members_max=members_max or len(processes),
                    )
                    kept = Journal.create(journal, served, services.coordination.generation())
                    stack.callback(kept.close, done=True)
                    services.coordination.journal = kept
            _put(values, store, bytes.fromhex(secret))
        if store is None:
            raise UsageError("when rank 0 serves the store, `store` must say where")
        signals = stack.enter_context(collected_signals())
        environments = variables(processes, settings, store=store, served=serve, secret=secret)
        running: list[Process] = []
        stack.callback(end_all, running)
        for rank, spec in enumerate(processes):
            channels = output.channels(rank, len(processes), out, err, quiet_others=quiet_others)
            running.append(Process(rank, spec, out=channels[0], err=channels[1]))
        orders = _Orders(environments=environments, store=store, journal=journal)
        begun = orders.give(running, signals, settings.start_timeout_s)
        kind = _Watch if services.coordination is None else _ElasticWatch
        failures = kind(begun, signals, services).until_the_end()
    if signals:
        if signals[0] == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(SIGNALLED + signals[0])
    return Outcome(
        failures=tuple(failures), ended=None if services.coordination is None else services.coordination.ended
    )


@dataclass
class _Services:
    """What the launcher serves: the store, unless rank 0 does, and the coordinator of an elastic job."""

    ledger: Ledger = field(default_factory=Ledger)
    store: Server | None = None
    coordination: Coordination | None = None
    coordinator: Server | None = None


@dataclass(frozen=True, kw_only=True)
class _Orders:
    """Order the leashes to start the ranks."""

    environments: Sequence[dict[str, str]]
    store: str
    journal: Path | None

    def give(self, processes: Sequence[Process], signals: list[int], timeout_s: float) -> Sequence[Process]:
        """Start rank 0, whose leash first announces torch's store, then the others.

        Returns the started ones: all, or rank 0 alone if it ended before that, or a signal came.
        """
        first, *others = processes
        machines = Counter(_machine(process.spec) for process in processes)
        first.order(self._order(first, machines, None))
        deadline_s = time.monotonic() + timeout_s
        while True:
            ended = (
                first.code is not None
            )  # before polling: a program may end at once, and the others must run all the same
            if (meeting := first.meeting(TICK_S)) is not None:
                break
            if signals or ended:
                return [first]
            if time.monotonic() > deadline_s:
                raise RendezvousError(
                    f"rank 0 on {first.spec.host or 'this machine'} did not start within {timeout_s:g} s\n"
                    "hint: see whether its host answers; HOCKET_START_TIMEOUT_S gives it longer"
                )
        for process in others:
            process.order(self._order(process, machines, meeting))
        return processes

    def _order(
        self, process: Process, machines: Counter[str | None], meeting: dict[str, str] | None
    ) -> dict[str, object]:
        spec = process.spec
        return {
            "argv": list(spec.argv),
            "environment": {**spec.environment, **self.environments[process.rank], **(meeting or {})},
            "directory": str(Path.cwd()),
            "ranks_here": machines[_machine(spec)],
            "silence_s": SILENCE_S if spec.remote else 0,
            "towards": addresses.split(self.store)[0],
            "opens_meeting": meeting is None,
            "goes_on": None if self.journal is None else f"{self.journal.absolute()}.rank{process.rank}.log",
        }


def _put(values: Mapping[str, Any] | None, store: str, secret: bytes) -> None:
    if not values:
        return
    launcher = Store(store, secret, rank=None, who="the launcher", timeout_s=PUT_TIMEOUT_S)
    for key, value in values.items():
        launcher.set(key, value)
    launcher.leave()


class _Watch:
    """Wait from the start to the end of all ranks: notes which failed when, and ends the others."""

    def __init__(self, processes: Sequence[Process], signals: list[int], services: _Services) -> None:
        """No process has ended yet."""
        self._processes = processes
        self._signals = signals
        self._services = services
        self._failures: list[Process] = []
        self._steps: list[tuple[float, int]] = []

    def until_the_end(self) -> list[Failure]:
        flow = Flow(self._processes)
        running = list(self._processes)
        heeded = 0
        while running or self._goes_on_elsewhere():
            flow.move(TICK_S)
            ended = [process for process in running if process.code is not None]
            running = [process for process in running if process not in ended]
            # Two in one tick: a killed rank is the cause, a rank that reports is the consequence.
            failed = [process for process in ended if process.code != 0]
            failed = self._held_against_the_job(
                sorted(failed, key=lambda each: (each.code or 0) <= SIGNALLED), running
            )
            self._failures += failed
            self._tell_the_others(failed)
            if self._failures and not self._steps:
                self._plan_the_end(REPORT_S)
            for number in self._signals[heeded:]:
                self._heed(number, running, again=heeded > 0)
                heeded += 1
            self._take_steps(running)
            for process in running:
                process.sign_of_life()
        flow.drain(TERMINATE_S)
        return [_failure(process) for process in self._failures]

    def _goes_on_elsewhere(self) -> bool:
        """Whether ranks train that others have started."""
        return False

    def _held_against_the_job(self, failed: list[Process], running: Sequence[Process]) -> list[Process]:
        """Those of the processes that have just failed because of which the job ends; `running`: the others."""
        del running
        return failed

    def _tell_the_others(self, failed: Sequence[Process]) -> None:
        """The store misses a rank that was connected. One that failed before that would be waited for."""
        for each in map(_failure, failed):
            if self._services.store is not None:
                reason = f"rank {each.rank} on {each.host} ended before it joined the job: {each.how}\nhint: see its output"
                refuse = functools.partial(self._services.ledger.refuse_absent, each.rank, reason)
                self._services.store.call(refuse)

    def _heed(self, number: int, running: Sequence[Process], *, again: bool) -> None:
        """Forward Ctrl-C and the like; the second time, do not wait."""
        for process in running:
            process.signal(signal.SIGKILL if again else number)
        self._plan_the_end(0.0 if again else REPORT_S)

    def _plan_the_end(self, patience_s: float) -> None:
        at_s = time.monotonic() + patience_s
        self._steps = [
            (at_s, signal.SIGTERM),
            (at_s + TERMINATE_S, signal.SIGKILL),
            (at_s + 2 * TERMINATE_S, 0),
            (float("inf"), 0),
        ]

    def _take_steps(self, running: Sequence[Process]) -> None:
        while self._steps and self._steps[0][0] <= time.monotonic():
            _, number = self._steps.pop(0)
            for process in running:
                if number:
                    process.signal(number)
                else:
                    process.kill()


class _ElasticWatch(_Watch):
    """The same of an elastic job: a rank that fails is lost, and the others go on as the coordinator decides."""

    def __init__(self, processes: Sequence[Process], signals: list[int], services: _Services) -> None:
        """The launcher serves the coordinator."""
        super().__init__(processes, signals, services)
        self._all = {process.rank: process for process in self._processes}
        self._lost: list[Process] = []

    def _goes_on_elsewhere(self) -> bool:
        coordination = self._services.coordination
        return coordination is not None and coordination.goes_on and not self._steps

    def _plan_the_end(self, patience_s: float) -> None:
        coordination, coordinator = self._services.coordination, self._services.coordinator
        if coordination is not None and coordinator is not None:
            coordinator.call(coordination.end_all)
        super()._plan_the_end(patience_s)

    def _held_against_the_job(self, failed: list[Process], running: Sequence[Process]) -> list[Process]:
        coordination, coordinator = self._services.coordination, self._services.coordinator
        if coordination is None or coordinator is None:
            return failed
        for process in failed:
            log.warning("%s", _failure(process))
            coordinator.call(functools.partial(coordination.gone, process.rank))
        while coordination.condemned:
            # Those that have joined were started by others, and end when they hear of it.
            if (condemned := self._all.get(coordination.condemned.popleft())) is not None:
                condemned.signal(signal.SIGKILL)
        if not coordination.founded:
            return failed
        if coordination.over:
            # The death of one that was left behind may be noticed only when the others have finished.
            return [process for process in failed if coordination.has(process.rank)]
        self._lost += failed
        succeeded = any(
            process.code == 0 and coordination.has(process.rank) for process in self._all.values()
        )
        if coordination.ended is not None or not (running or succeeded or coordination.goes_on):
            lost, self._lost = self._lost, []
            return lost
        return []


def _failure(process: Process) -> Failure:
    lines = tuple(line.decode(errors="replace") for line in process.err.last)
    host = process.spec.host or "this machine"
    return Failure(rank=process.rank, host=host, code=process.code or 0, last_lines=lines)


def _machine(spec: ProcessSpec) -> str | None:
    """Ranks behind a local prefix share this machine's cores, whatever the names of their hosts."""
    return spec.host if spec.remote else None


@contextlib.contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP instead of dying of them; only possible in the main thread."""
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield arrived
        return

    def note(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # ignored on purpose, by nohup or a shell's background job
            signal.signal(number, note)
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

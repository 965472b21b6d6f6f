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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from hocket.errors import PeerError, UsageError
from hocket.launch import address as addresses
from hocket.launch import elastic, listening
from hocket.launch.change_log import Ended
from hocket.launch.elastic import Elastic
from hocket.launch.ledger import Ledger
from hocket.launch.processes import SIGNALLED, Flow, Process, ProcessSpec, end_all
from hocket.launch.replacements import Replacements
from hocket.launch.server import Server
from hocket.launch.starting import TICK_S, Starter
from hocket.launch.store import Store
from hocket.launch.variables import variables
from hocket.settings import Settings

REPORT_S = 10.0
"""After a rank failed, or Ctrl-C, the others have this long to report and to end by themselves."""
TERMINATE_S = 5.0
"""From SIGTERM to SIGKILL, and from there to the end of the leash."""
LAST_LINES_SHOWN = 8
PUT_TIMEOUT_S = 10.0
"""Time-out for the launcher to reach its own store."""

log = logging.getLogger("hocket.run")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A rank that failed. `code` is 128 + N for signal N. `condemned`: the launcher killed it, whatever it would have died of."""

    rank: int
    host: str
    code: int
    last_lines: tuple[str, ...]
    condemned: bool = False

    @property
    def how(self) -> str:
        """The exit code, or the signal, or why the launcher sent that."""
        if self.condemned:
            return f"the others went on without it, and it was killed (exit code {self.code})"
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
    respawn: int = 0,
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
        respawn: an elastic job gets so many processes at most in the place of ranks that it loses.
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
    settings = dataclasses.replace(
        settings or Settings.from_environment(), coordinator=None, joins=False, member=None
    )
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
                services.elastic = elastic.serve(
                    stack,
                    processes,
                    settings,
                    host=host,
                    listeners=listeners,
                    secret=secret,
                    members_min=members_min,
                    members_max=members_max or len(processes),
                    respawn=respawn,
                    journal=journal,
                )
                settings = services.elastic.settings
            _put(values, store, bytes.fromhex(secret))
        if store is None:
            raise UsageError("when rank 0 serves the store, `store` must say where")
        signals = stack.enter_context(collected_signals())
        starter = Starter(
            processes,
            variables(processes, settings, store=store, served=serve, secret=secret),
            store=store,
            journal=journal,
            out=out,
            err=err,
            quiet_others=quiet_others,
        )
        stack.callback(end_all, starter.running)
        begun = starter.begin(signals, settings.start_timeout_s)
        coordination = None
        if services.elastic is None:
            failures = _Watch(begun, signals, services).until_the_end()
        else:
            coordination = services.elastic.coordination
            start = functools.partial(starter.replace, services.elastic.job)
            replacements = Replacements(coordination, len(processes), respawn, start)
            failures = _ElasticWatch(begun, signals, services, services.elastic, replacements).until_the_end()
    if signals:
        if signals[0] == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(SIGNALLED + signals[0])
    return Outcome(failures=tuple(failures), ended=None if coordination is None else coordination.ended)


@dataclass
class _Services:
    """What the launcher serves: the store, unless rank 0 does, and the coordinator of an elastic job."""

    ledger: Ledger = field(default_factory=Ledger)
    store: Server | None = None
    elastic: Elastic | None = None


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
            for process in self._started_meanwhile(running):
                flow.add(process)
                running.append(process)
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

    def _started_meanwhile(self, running: Sequence[Process]) -> Iterable[Process]:
        """Processes that train with those that are `running`."""
        del running
        return ()

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

    def __init__(
        self,
        processes: Sequence[Process],
        signals: list[int],
        services: _Services,
        elastic: Elastic,
        replacements: Replacements,
    ) -> None:
        """The launcher serves the coordinator."""
        super().__init__(processes, signals, services)
        self._coordination, self._coordinator = elastic.coordination, elastic.coordinator
        self._replacements = replacements
        self._all = {process.rank: process for process in self._processes}
        self._condemned: dict[Process, float] = {}
        """Until when their leashes may take to end them: a host that is cut off takes for ever."""
        self._lost: list[Process] = []

    def _goes_on_elsewhere(self) -> bool:
        return self._coordination.goes_on and not self._steps

    def _plan_the_end(self, patience_s: float) -> None:
        self._coordinator.call(self._coordination.end_all)
        super()._plan_the_end(patience_s)

    def _started_meanwhile(self, running: Sequence[Process]) -> Iterable[Process]:
        if self._steps:
            return ()
        if not self._may_be_joined(running):
            for process in filter(self._replacements.waits, running):
                process.signal(signal.SIGKILL)
            return ()
        started = tuple(self._replacements.started())
        self._all.update((process.rank, process) for process in started)
        return started

    def _may_be_joined(self, running: Sequence[Process]) -> bool:
        """Whether there is somebody with the job's state whom others may still meet."""
        job = self._coordination
        if job.over or job.ended is not None:
            return False
        return job.goes_on or any(not self._replacements.waits(process) for process in running)

    def _end_condemned(self, running: Sequence[Process]) -> None:
        now_s = time.monotonic()
        while self._coordination.condemned:
            # Those that have joined by themselves were started by others, and end when they hear of it.
            if (condemned := self._all.get(self._coordination.condemned.popleft())) is not None:
                condemned.signal(signal.SIGKILL)
                self._condemned[condemned] = now_s + TERMINATE_S
        for process, until_s in tuple(self._condemned.items()):
            if process not in running:
                del self._condemned[process]
            elif now_s > until_s:
                process.kill()

    def _held_against_the_job(self, failed: list[Process], running: Sequence[Process]) -> list[Process]:
        job = self._coordination
        for process in failed:
            if self._replacements.is_new(process) and not self._may_be_joined(running):
                log.info("rank %d ends before it has joined: the job has ended", process.rank)
                continue
            condemned = process in self._condemned and process.code == SIGNALLED + signal.SIGKILL
            log.warning("%s", _failure(process, condemned=condemned))
            self._coordinator.call(functools.partial(job.gone, process.rank))
            self._replacements.lost(process)
        self._end_condemned(running)
        if not job.founded:
            return failed
        if job.over:
            # The death of one that was left behind may be noticed only when the others have finished.
            return [process for process in failed if job.has(process.rank)]
        self._lost += failed
        succeeded = any(process.code == 0 and job.has(process.rank) for process in self._all.values())
        trained = [process for process in running if not self._replacements.waits(process)]
        if job.ended is not None or not (trained or succeeded or job.goes_on):
            lost, self._lost = self._lost, []
            return [process for process in lost if not self._replacements.made_up_for(process)]
        return []


def _failure(process: Process, *, condemned: bool = False) -> Failure:
    lines = tuple(line.decode(errors="replace") for line in process.err.last)
    return Failure(
        rank=process.rank,
        host=process.host,
        code=process.code or 0,
        last_lines=lines,
        condemned=condemned,
    )


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

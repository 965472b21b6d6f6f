"""Launcher that starts the ranks of a job, locally or remotely, and waits until all have ended; it leaves nothing behind.

The launcher serves the store, creates the secret, shows the ranks' output, and finally reports which rank failed first and how.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import secrets
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from hocket.errors import UsageError
from hocket.job.store import address as addresses
from hocket.job.store import listening
from hocket.job.store.ledger import Ledger
from hocket.job.store.live import Gone
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from hocket.job.store.verdict import Exit, Report, settled, verdict
from hocket.members.roster import Ended
from hocket.settings import Settings
from hocket.start import elastic
from hocket.start.elastic import Elastic
from hocket.start.last_ones import LastOnes
from hocket.start.live import observed, tell_observers
from hocket.start.outcome import Failure, Outcome, failure_of
from hocket.start.processes import SIGNALLED, Flow, Process, ProcessSpec, end_all
from hocket.start.replacements import Replacements
from hocket.start.signals import collected_signals
from hocket.start.starting import TICK_S, Starter
from hocket.start.until_over import end_by
from hocket.start.variables import variables

REPORT_S = 4.0
"""Time after a rank failed in which others may report and end by themselves, unless the others wait for them."""
INTERRUPT_S = 10.0
"""Time to end by themselves after Ctrl-C, when ranks may have something to save."""
TERMINATE_S = 4.0
"""Time from SIGTERM to SIGKILL, and from there to the end of the leash."""
DYING_S = 1.0
"""Time in which a rank whose connection has ended may end by itself and say why; it is most likely about to."""
PUT_TIMEOUT_S = 10.0
"""Time limit for the launcher to reach its own store."""

log = logging.getLogger("hocket.run")


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
        processes: the ranks' specifications.
        settings: passed to every rank, besides its identity; default: from the environment.
        store: `HOST:PORT` of the store as ranks reach it; default: loopback, a free port.
        serve: whether the launcher serves the store there; otherwise rank 0 does.
        values: initial values of the store, if the launcher serves it.
        quiet_others: show only the output of rank 0, unchanged.
        members_min: the job goes on without lost ranks while so many are left; None: it ends with the first loss. The launcher
            serves the store.
        members_max: limit of ranks when others join; default: as many as are started.
        respawn: limit of processes that an elastic job gets in the place of lost ranks.
        journal: path of an elastic job's journal, from which `resume` goes on if this process dies; ranks go on meanwhile.
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
                Server(
                    listeners,
                    port,
                    bytes.fromhex(secret),
                    services.ledger,
                    ports=settings.port_range,
                    elsewhere="give another ADDRESS:PORT of this machine by --store, or none: a free port is found",
                )
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
                services.ledger.live.goodput = services.elastic.stores.goodput
            _put(values, store, bytes.fromhex(secret))
            # When those of this process have closed.
            stack.callback(services.tell_observers)
            stores = None if services.elastic is None else services.elastic.stores
            observed(stack, store, secret, processes[0].argv, settings, stores=stores)
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
        if failures and not signals:
            services.ended = Gone(message=str(failures[0]), fault=failures[0].rank)
    end_by(signals)
    ended = None if coordination is None else coordination.roster.ended
    if services.failure is not None:
        ended = Ended(why=services.failure, lost=())
    return Outcome(failures=tuple(failures), ended=ended)


@dataclass
class _Services:
    """Services of the launcher: the store, unless rank 0 serves it, and the coordinator of an elastic job."""

    ledger: Ledger = field(default_factory=Ledger)
    store: Server | None = None
    elastic: Elastic | None = None
    ended: Gone | None = None
    """End of a job that has failed."""

    def tell_observers(self) -> None:
        """Let observers hear how the job has ended."""
        met = None if self.elastic is None else self.elastic.stores.newest
        if met is not None:
            tell_observers(*met, self.ended)
        elif self.store is not None:
            tell_observers(self.ledger, self.store, self.ended)

    @property
    def reports(self) -> Mapping[int, Report]:
        """Reports of ranks as they left, in that order."""
        return dict(self.ledger.reports)

    @property
    def failure(self) -> str | None:
        """Error that has ended one of its threads, which then answers no client; or None."""
        served = () if self.elastic is None else (self.elastic.coordinator, self.elastic.stores)
        return next((each.failure for each in (self.store, *served) if each and each.failure), None)


def _put(values: Mapping[str, Any] | None, store: str, secret: bytes) -> None:
    if not values:
        return
    launcher = Store(store, secret, rank=None, who="the launcher", timeout_s=PUT_TIMEOUT_S)
    for key, value in values.items():
        launcher.set(key, value)
    launcher.leave()


class _Watch:
    """Watch over all ranks from start to end: it notes which failed and when, and ends the others."""

    def __init__(self, processes: Sequence[Process], signals: list[int], services: _Services) -> None:
        self._processes = processes
        self._signals = signals
        self._services = services
        self._failures: list[Process] = []
        self._steps: list[tuple[float, int]] = []
        self._ended: set[Process] = set()
        """Processes that ran when the launcher ended all."""
        self._last_ones = LastOnes()

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
            self._note_ends(ended)
            # Two failures in one tick: a killed rank is the cause, a rank that reports is the consequence.
            failed = [process for process in ended if process.code != 0]
            failed = self._held_against_the_job(
                sorted(failed, key=lambda each: (each.code or 0) <= SIGNALLED), running
            )
            self._failures += failed
            self._tell_the_others(failed)
            if (self._failures or self._services.failure) and not self._steps:
                self._plan_the_end(REPORT_S)
            if failed and settled([process.rank for process in running], self._services.reports):
                self._end_now()
            for number in self._signals[heeded:]:
                self._heed(number, running, again=heeded > 0)
                heeded += 1
            self._take_steps(running)
            self._note_last_ones(running)
            for process in running:
                process.sign_of_life()
        flow.drain(TERMINATE_S)
        return self._in_order()

    def _in_order(self) -> list[Failure]:
        """Return the failures, the one of the rank at fault first."""
        exits = {each.rank: Exit(code=each.code or 0, ended=each in self._ended) for each in self._failures}
        found = verdict(exits, self._services.reports, self._lost_at_the_end()) if self._failures else None
        failures = {each.rank: failure_of(each, ended=each in self._ended) for each in self._failures}
        if found is None:
            return list(failures.values())
        guilty = next((each for each in self._processes if each.rank == found.rank), None)
        if guilty is None:
            return list(failures.values())
        first = failures.pop(found.rank, None) or failure_of(guilty, ended=guilty in self._ended)
        return [dataclasses.replace(first, accusers=found.accusers, why=found.why), *failures.values()]

    def _goes_on_elsewhere(self) -> bool:
        """Return whether ranks that were started elsewhere train."""
        return False

    def _lost_at_the_end(self) -> Sequence[int]:
        """Members whose loss has ended the job."""
        return ()

    def _started_meanwhile(self, running: Sequence[Process]) -> Iterable[Process]:
        """Processes that train beside those that are `running`."""
        del running
        return ()

    def _note_ends(self, ended: Sequence[Process]) -> None:
        """Note processes that have just ended, whatever their exit codes."""

    def _note_last_ones(self, running: Sequence[Process]) -> None:
        """Log the ranks for which the launcher waits, after the others have ended well."""
        if running and len(running) < len(self._processes) and not self._steps:
            self._last_ones.note([(each.rank, each.host) for each in running])

    def _held_against_the_job(self, failed: list[Process], running: Sequence[Process]) -> list[Process]:
        """Return those of the `failed` processes because of which the job ends; `running`: the others."""
        del running
        return failed

    def _tell_the_others(self, failed: Sequence[Process]) -> None:
        """Tell the store of ranks that failed before they connected, for which others would wait; it misses connected ones
        itself."""
        for each in map(failure_of, failed):
            if self._services.store is not None:
                reason = f"rank {each.rank} on {each.host} ended before it joined the job: {each.how}\nhint: see its output"
                refuse = functools.partial(self._services.ledger.refuse_absent, each.rank, reason)
                self._services.store.call(refuse)

    def _heed(self, number: int, running: Sequence[Process], *, again: bool) -> None:
        """Forward Ctrl-C and the like; the second time, do not wait."""
        for process in running:
            process.signal(signal.SIGKILL if again else number)
        self._ended.update(running)
        self._plan_the_end(0.0 if again else INTERRUPT_S)

    def _plan_the_end(self, patience_s: float) -> None:
        at_s = time.monotonic() + patience_s
        self._steps = [
            (at_s, signal.SIGTERM),
            (at_s + TERMINATE_S, signal.SIGKILL),
            (at_s + 2 * TERMINATE_S, 0),
            (float("inf"), 0),
        ]

    def _end_now(self) -> None:
        """End the ranks at once, since none that still runs has anything to report."""
        if self._steps and self._steps[0][1] == signal.SIGTERM:
            self._plan_the_end(0.0)

    def _take_steps(self, running: Sequence[Process]) -> None:
        while self._steps and self._steps[0][0] <= time.monotonic():
            _, number = self._steps.pop(0)
            self._ended.update(running)
            for process in running:
                if number:
                    process.signal(number)
                    # A stopped process would take the signal when it is continued.
                    process.signal(signal.SIGCONT)
                else:
                    process.kill()


class _ElasticWatch(_Watch):
    """Watch over an elastic job: a rank that fails is lost, and the others go on as the coordinator decides."""

    def __init__(
        self,
        processes: Sequence[Process],
        signals: list[int],
        services: _Services,
        elastic: Elastic,
        replacements: Replacements,
    ) -> None:
        super().__init__(processes, signals, services)
        self._coordination, self._coordinator = elastic.coordination, elastic.coordinator
        self._replacements = replacements
        self._all = {process.rank: process for process in self._processes}
        self._dying: dict[Process, float] = {}
        """Times at which processes without which the others go on are killed."""
        self._condemned: dict[Process, float] = {}
        """Deadlines for leashes to end such processes: a host that is cut off never answers."""
        self._lost: list[Process] = []

    def _goes_on_elsewhere(self) -> bool:
        return self._coordination.roster.goes_on and not self._steps

    def _lost_at_the_end(self) -> Sequence[int]:
        return () if self._coordination.roster.ended is None else self._coordination.roster.ended.lost

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

    def _note_last_ones(self, running: Sequence[Process]) -> None:
        """No-op: members may leave long before the others have trained to the end."""

    def _may_be_joined(self, running: Sequence[Process]) -> bool:
        """Return whether a member has the job's state and others may still meet it."""
        job = self._coordination
        if job.roster.over or job.roster.ended is not None:
            return False
        return job.roster.goes_on or any(not self._replacements.waits(process) for process in running)

    def _end_condemned(self, running: Sequence[Process]) -> None:
        now_s = time.monotonic()
        for number, runs in self._coordination.condemned.take():
            # Members that were started elsewhere end when they hear of it.
            if (condemned := self._all.get(number)) is not None:
                condemned.left_behind = runs
                self._dying[condemned] = now_s + (0.0 if runs else DYING_S)
        for process, at_s in tuple(self._dying.items()):
            if process not in running:
                del self._dying[process]
            elif now_s >= at_s:
                del self._dying[process]
                process.condemn()
                self._condemned[process] = now_s + TERMINATE_S
                self._ended.add(process)
        for process, until_s in tuple(self._condemned.items()):
            if process not in running:
                del self._condemned[process]
            elif now_s > until_s:
                process.kill()

    def _note_ends(self, ended: Sequence[Process]) -> None:
        job = self._coordination
        for process in ended:
            if process.code == 0 and job.roster.misses(process.rank):
                log.warning("rank %d on %s has ended before the others", process.rank, process.host)
                self._replacements.lost(process)
            self._coordinator.call(functools.partial(job.gone, process.rank))

    def _held_against_the_job(self, failed: list[Process], running: Sequence[Process]) -> list[Process]:
        job = self._coordination
        for process in failed:
            if self._replacements.is_new(process) and not self._may_be_joined(running):
                log.info("rank %d ends before it has joined: the job has ended", process.rank)
                continue
            log.warning("%s", failure_of(process))
            self._replacements.lost(process)
        self._end_condemned(running)
        if not job.roster.founded:
            return failed
        if job.roster.over:
            # The death of a rank that was left behind may be noticed only when the others have finished.
            return [process for process in failed if job.roster.has(process.rank)]
        self._lost += failed
        trained = [process for process in running if not self._replacements.waits(process)]
        if job.roster.ended is not None or not (trained or job.roster.goes_on):
            lost, self._lost = self._lost, []
            return [process for process in lost if not self._replacements.made_up_for(process)]
        return []

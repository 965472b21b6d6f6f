"""A job in which a course of events happens that follows from a seed, and what must hold of it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock

from hocket.errors import RendezvousError
from hocket.job.store.sought import COORDINATOR, Sought
from hocket.members.member_limits import Limits
from hocket.settings import Settings
from tests.meetings.clockwork import Clockwork, Threading, Time
from tests.meetings.network import LOOK_S, Connection, LauncherDied, Network, Worker
from tests.meetings.script import Script, Step

CLOCKED = (
    *("change_log", "contact", "convening", "coordination", "handover", "link", "meetings"),
    *("member_limits", "membership", "participation", "preparation", "progress", "sight"),
)
"""Modules of `hocket.members` that read a clock."""
SILENCE_S = 2.0
TIMEOUT_S = 60.0
"""How long a script waits for others."""
STEPS = 150
EVENTS_S = 3.0
"""In which they happen."""
BURST_S = 0.1
"""In which they happen when they come together."""
PATIENCE_S = 600.0
"""In which the job must have ended."""
REFILLS = 0.3
REJOIN_S = 30.0
PASSED_BY_MAX = 1
"""Steps that a member may begin beside one that it is to meet: an epoch with that one may follow a loss in the step before."""
AT_MESSAGE = 0.5
"""How many events wait for a message or a record that is written rather than for a time."""


log = logging.getLogger(__name__)


class Course:
    def __init__(self, seed: int, *, reports: bool = False) -> None:
        """`reports`: ranks report what stands, so the course is another one."""
        self._reports = reports
        self.work = Clockwork(seed)
        self.random = self.work.random
        founders = self.random.randint(2, 4)
        # Where there must be two, others come for those that are lost.
        refills = self.random.random() < REFILLS
        self.limits = Limits(
            members_min=2 if refills else 1,
            members_max=founders + self.random.randint(0, 3),
            heartbeat_s=SILENCE_S,
            join_patience_s=60.0,
            rejoin_patience_s=REJOIN_S if refills else 0.0,
        )
        self.faulty: set[Worker] = set()
        self.log: list[str] = []
        self._messages = 0
        self._at_messages: list[tuple[int, Any]] = []
        self._at_writes: list[int] = []
        self._writes = 0
        with self.patched():
            self.network = Network(
                self.work, self.limits, founders, handles=self._handles, writes=self._note_write
            )
            self._first_launcher = self.network.launcher
            self._hosts = "abc"[: self.random.randint(1, 3)]
            workers = [
                Worker(f"founder {rank}", self.random.choice(self._hosts), self.network.launcher)
                for rank in range(founders)
            ]
            fabric: dict[int, Any] = {}
            self.scripts = []
            for rank, worker in enumerate(workers):
                worker.member = rank
                script = self._started(worker)
                self.work.start(worker, lambda s=script, r=rank: s.found(r, workers, fabric))

    def _started(self, worker: Worker) -> Script:
        settings = Settings(
            coordinator="launcher:1",
            heartbeat_timeout_s=SILENCE_S,
            timeout_s=TIMEOUT_S,
            start_timeout_s=20.0,
            coordinator_timeout_s=60.0,
            rejoin_timeout_s=self.limits.rejoin_patience_s or None,
        )
        script = Script(self.network, worker, settings, STEPS)
        script.reports = self._reports
        self.network.workers.append(worker)
        self.scripts.append(script)
        worker.ended.append(lambda: self._say(f"{worker.name} ends with {worker.code}"))
        if worker.started_by is not None:
            launcher = worker.started_by
            worker.ended.append(
                lambda: self.work.after(self.random.uniform(0, LOOK_S), lambda: launcher.has_ended(worker))
            )
        return script

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Where code of the job runs: its clock, its threads and its connections are the world's."""
        time, threading = Time(self.work), Threading(self.work)
        with contextlib.ExitStack() as stack:
            for module in CLOCKED:
                stack.enter_context(mock.patch(f"hocket.members.{module}.time", time))
            for module in ("contact", "preparing"):
                stack.enter_context(mock.patch(f"hocket.members.{module}.threading", threading))
            stack.enter_context(mock.patch("hocket.members.link.connect", self._connect))
            yield

    def _connect(
        self,
        address: str,
        secret: bytes,
        timeout_s: float,
        patience_s: float | None = None,
        *,
        sought: Sought,
    ) -> tuple[str, Connection]:
        assert sought is COORDINATOR
        until_s = self.work.now_s + max(timeout_s, patience_s or 0)
        worker = self.work.current.process
        assert isinstance(worker, Worker)
        while True:
            made = None if worker.cut else self.network.connect(worker)
            if made is not None:
                return address, made
            if self.work.now_s >= until_s:
                raise RendezvousError("nobody listens")
            self.work.pause(0.05)

    def _say(self, text: str) -> None:
        self.log.append(f"{self.work.now_s:8.3f} {text}")
        log.info(self.log[-1])

    def plan(self) -> None:
        kinds = ["join", "join", "kill", "leave", "launcher", "join and die"]
        if self.random.random() < 0.3:
            kinds += ["cut", "stop"]
        begin_s, span_s = self.random.choice([(0.1, EVENTS_S), (self.random.uniform(0.1, EVENTS_S), BURST_S)])
        # Drawn apart from all else, so that courses without it are as they were.
        hangs = Random(self.random.getstate()[1][0])  # noqa: S311  # a seed gives the same course again
        for _ in range(hangs.choice([0, 0, 1, 2])):
            happens = hangs.choice([self._hang, self._end_early])
            self.work.after(hangs.uniform(begin_s, begin_s + span_s), happens)
        for _ in range(self.random.randint(1, 10)):
            kind = self.random.choice(kinds)
            time_s = self.random.uniform(begin_s, begin_s + span_s)
            happens = getattr(self, "_" + kind.replace(" ", "_"))
            if self.random.random() < AT_MESSAGE:
                self.work.after(
                    time_s,
                    lambda h=happens: self._at_messages.append(
                        (self._messages + self.random.randint(1, 40), h)
                    ),
                )
            else:
                self.work.after(time_s, happens)

    def _handles(self) -> None:
        self._messages += 1
        due = [each for each in self._at_messages if each[0] <= self._messages]
        for each in due:
            self._at_messages.remove(each)
            self.work.after(0, each[1])

    def _note_write(self) -> None:
        self._writes += 1
        if self._writes in self._at_writes:
            self._say("the launcher dies while it writes")
            self.work.after(self._until_resumed_s(), self._resume)
            raise LauncherDied

    def _living(self) -> list[Script]:
        return [each for each in self.scripts if not each.worker.dead]

    def _join(self) -> None:
        worker = Worker(f"newcomer {len(self.scripts)}", self.random.choice(self._hosts), None)
        script = self._started(worker)
        self._say(f"{worker.name} comes on {worker.host}")
        self.work.start(worker, script.join)

    def _join_and_die(self) -> None:
        self._join()
        worker = self.scripts[-1].worker
        self.work.after(self.random.uniform(0, 0.4), lambda: self._end(worker))

    def _end(self, worker: Worker) -> None:
        if not worker.dead and len(self._holders()) > (worker in self._holders()):
            self._say(f"{worker.name} is killed")
            self.faulty.add(worker)
            worker.end(137)
            self._refill()

    def _refill(self) -> None:
        if self.limits.members_min > 1:
            self.work.after(self.random.uniform(0, SILENCE_S), self._join)

    def _holders(self) -> list[Worker]:
        return [each.worker for each in self._living() if each.trains and each.worker not in self.faulty]

    def _kill(self) -> None:
        if self._living():
            self._end(self.random.choice(self._living()).worker)

    def _leave(self) -> None:
        holders = [
            each for each in self._living() if each.membership is not None and each.worker not in self.faulty
        ]
        if len(self._holders()) > 1 and holders:
            script = self.random.choice(holders)
            self._say(f"{script.worker.name} is asked to leave")
            assert script.membership is not None
            # It may be gone before others come.
            self.faulty.add(script.worker)
            script.membership.leave()

    def _launcher(self) -> None:
        launcher = self.network.launcher
        if launcher.alive and launcher.coordination.roster.founded:
            if self.random.random() < 0.3:
                self._at_writes.append(self._writes + self.random.randint(1, 3))
            else:
                self._say("the launcher dies")
                launcher.kill()
                self.work.after(self._until_resumed_s(), self._resume)

    def _until_resumed_s(self) -> float:
        return self.random.uniform(0.01, 45.0 if self.random.random() < 0.1 else 1.5)

    def _resume(self) -> None:
        if not self.network.launcher.alive:
            self._say("another launcher comes")
            self.network.resume()

    def _cut(self) -> None:
        self._interrupt("cut")

    def _stop(self) -> None:
        self._interrupt("stopped")

    def _hang(self) -> None:
        self._interrupt("hangs")

    def _end_early(self) -> None:
        scripts = [each for each in self._living() if each.worker in self._holders()]
        if len(scripts) > 1:
            script = self.random.choice(scripts)
            self.faulty.add(script.worker)
            script.ends_early = True
            self._say(f"{script.worker.name} ends early")
            self._refill()

    def _interrupt(self, how: str) -> None:
        living = [each for each in self._living() if each.worker in self._holders()]
        if len(living) < 2:
            return
        worker = self.random.choice(living).worker
        self.faulty.add(worker)
        setattr(worker, how, True)
        self._say(f"{worker.name} is {how}")
        for each in self._living():
            engine = getattr(each, "_engine", None)
            if how != "hangs" and engine is not None and worker in engine._workers:
                engine.falls_silent(engine._workers.index(worker))
        longest_s = 3 * (TIMEOUT_S if how == "hangs" else SILENCE_S)
        self.work.after(self.random.uniform(0.1, longest_s), lambda: self._heal(worker, how))
        self._refill()

    def _heal(self, worker: Worker, how: str) -> None:
        setattr(worker, how, False)
        held, worker.held = worker.held, []
        self._say(f"{worker.name} is {how} no more")
        for each in held:
            each()

    def run(self) -> list[str]:
        with self.patched():
            try:
                self.plan()
                ended = self.work.run(
                    self.work.now_s + PATIENCE_S, lambda: all(each.worker.dead for each in self.scripts)
                )
                living = [each.worker.name for each in self._living()]
            finally:
                self.work.end()
        wrong = list(self.work.surprises)
        if not ended:
            wrong.append(f"{living} had not ended {PATIENCE_S:g} s after the job began")
        return wrong + self._wrong_ends() + self._wrong_steps()

    def _wrong_ends(self) -> list[str]:
        wrong = []
        for script in self.scripts:
            healthy = script.worker not in self.faulty
            if healthy and script.worker.code not in (0, None) and not self._came_too_late(script):
                wrong.append(f"{script.worker.name} ended with {script.worker.code}: {script.why}")
            if script.passed_by > PASSED_BY_MAX:
                wrong.append(f"{script.worker.name} made {script.passed_by} steps beside one that waits")
            if healthy and script.worker.code == 0 and len(script.made) != STEPS:
                wrong.append(f"{script.worker.name} made {len(script.made)} steps")
        if not any(script.worker.code == 0 and len(script.made) == STEPS for script in self.scripts):
            wrong.append("nobody came to the end")
        return wrong

    def wrong_account(self) -> list[str]:
        """The launcher's account of the work, if it has seen all of it. Whoever is lost may have been the only one to know of its
        last step."""
        found = self.network.launcher.coordination.changes.account.goodput()
        if found is None or self.network.launcher is not self._first_launcher:
            return []
        made = max((each.made for each in self.scripts), key=len)
        if (found.steps, found.committed) != (len(made), sum(map(len, made))):
            return [
                f"the account has {found.committed} of {sum(map(len, made))} steps of ranks, {found.steps} of {len(made)}"
            ]
        return []

    def _came_too_late(self, script: Script) -> bool:
        """The job had ended, or was about to, before it could become a member."""
        return script.worker.started_by is None and not script.made

    def _wrong_steps(self) -> list[str]:
        chains: list[tuple[str, list[Step]]] = [
            (each.worker.name, each.made[:-1] if each.worker in self.faulty else each.made)
            for each in self.scripts
        ]
        longest = max((made for _, made in chains), key=len)
        return [
            f"{name} made step {step} of {own[step]}, and others of {longest[step]}"
            for name, own in chains
            for step in range(len(own))
            if own[step] != longest[step]
        ][:1]

"""Autopilot, a duty beside training: all ranks meet at the store, look, prepare programs and learn epochs.

A meeting is one gather: every rank reports, and rank 0 gives the order that follows from the meeting before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from hocket import _native, typed
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.errors import Error
from hocket.job.rendezvous import Job
from hocket.job.store.store import Store
from hocket.measure.budget import Budget
from hocket.measure.quick import HOSTS_MAX, TAG, Look, Pauses
from hocket.policy.epoch import Epoch, Epochs
from hocket.training.autopilot.coordinator import FIRST_S, Coordinator
from hocket.training.autopilot.knowledge import Knowledge
from hocket.training.autopilot.meeting import Order, Report
from hocket.training.autopilot.plans import Plans
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.autopilot.traffic import Connections
from hocket.training.beside.beside import PATIENCE_S, Beside, Duty
from hocket.training.memory.buckets import CompiledBucket

PLAN = "plan"
"""Name of the agreed value that is the key of the plan in force. Without this value, the default plan is in force."""

STEP_PATIENCE_S = 2.0
"""Time that a look waits for the end of a step: in a pause of training the network is free anyway."""

SETTLES_S = 1.0
"""Time before an autopilot works on, after the members of an elastic job have changed: losses come in groups, and the step in which
a loss is made up for is to end first."""

PROFILED_RANKS = 16
"""Number of ranks that bring their part of the profile: more would say the same."""


def useful(job: Job, *, asked: bool = False) -> bool:
    """Return whether a job can gain anything by another plan: it has a network, not too many hosts to look at it, and all ranks
    reach all. `asked`: a search or HOCKET_REORDER asks for one, whether jobs drive themselves or not."""
    return (asked or job.settings.autopilot) and 1 < len(set(job.hosts)) <= HOSTS_MAX and not job.relays()


class Autopilot(Duty):
    """Autopilot of one model, and in an elastic job of one epoch of members. `delays`: plans that it proposes may merge
    gradients, or apply them late."""

    stays = "the plan in force stays"

    def __init__(
        self,
        beside: Beside,
        engine: _native.Engine,
        knowledge: Knowledge,
        default: Callable[[Epoch], Plan],
        *,
        first: Epoch | None = None,
        watch: Stopwatch | None = None,
        ready: Callable[[], Mapping[int, CompiledBucket]] = dict,
    ) -> None:
        """Prepare without running anything. `default`: plan of an epoch that names no other. `first`: epoch of policies in force;
        None: the job's first. `watch`: that of the session, if it had one before. `ready`: returns buckets that parameter servers
        hold."""
        job, among, number = beside.job, beside.among, beside.number
        self.first_s = FIRST_S + (SETTLES_S if among is not None and among.epoch else 0.0)
        self.watch = Stopwatch() if watch is None else watch
        self.delays = knowledge.delays
        # A plan that was given does not depend on the order in which backward makes gradients; in elastic jobs nobody asks for it.
        self.epochs = Epochs(first or Epoch(0), observes=knowledge.given is None and among is None)
        self.knowledge = knowledge
        self.beside, self._engine, self._default = beside, engine, default
        gradients = {each.name: each for each in knowledge.gradients}
        self._plans = Plans(gradients, job, knowledge.check, ready)
        self._prefix = f"autopilot/{beside.name}"
        self._tag = TAG - 1 - (number if among is None else among.epoch)
        self._stepped, self._looking = threading.Event(), threading.Event()
        self._connections = Connections(engine, job.hosts)
        self._budget = Budget(time.monotonic())
        self._prepared = ""
        self._refused: tuple[str, str] | None = None
        self._reports_times = job.rank < PROFILED_RANKS
        self._coordinator: Coordinator | None = None
        if job.rank == 0:
            # Traces cover the first model of a process, and elastic jobs that rank 0 has begun.
            traced = number == 0 if among is None else among.generation == among.everyone.rank == 0
            self._coordinator = Coordinator(
                self.watch,
                knowledge,
                profiled_ranks=min(job.world, PROFILED_RANKS),
                prefix=self._prefix,
                trace=job.settings.trace if traced else None,
            )

    def plan(self, epoch: Epoch) -> Plan:
        """Return the plan of an epoch."""
        key = epoch.agreed.get(PLAN)
        return self._default(epoch) if key is None else self._plans.plan(str(key))

    def programs(self, epoch: Epoch) -> list[CompiledBucket] | None:
        """Return the programs of an epoch that names a plan: they were made before it began."""
        key = epoch.agreed.get(PLAN)
        return None if key is None else self._plans.programs(str(key))

    def step_ended(self) -> None:
        """Note that the thread that trains has ended a step: the network is free for a moment."""
        self.watch.ended(self.epochs.current.number)
        self._stepped.set()

    def stop(self) -> bool:
        """Hear that no other turn follows; a round of a look ends first, since another rank takes part in it."""
        self._stepped.set()
        return self._looking.is_set()

    def turn(self, store: Store) -> float:
        """Hold one meeting of all ranks; return the seconds to the next."""
        coordinator = self._coordinator
        times = self.watch.times() if self._reports_times else None
        if times is not None:
            self._reports_times = False
        mine = Report(
            epoch=self.watch.epoch,
            settled=self.epochs.settled and self.epochs.current.number == self.watch.epoch,
            prepared=self._prepared,
            refused=self._refused,
            times=times,
            sent=self._connections.sample(),
            retreated=self.watch.retreated,
            order=None if coordinator is None else coordinator.order(store),
        )
        given = self.beside.gather("autopilot", msgspec.to_builtins(mine))
        everyone = [typed.of_builtins(each, Report) for each in given]
        order = everyone[0].order or Order(what="wait", interval_s=FIRST_S)
        now = self.plan(self.epochs.current)
        self.knowledge.search_s = order.search_s
        if coordinator is not None:
            coordinator.meet(everyone, now)
        self._follow(order, now, store)
        return order.interval_s

    def _follow(self, order: Order, now: Plan, store: Store) -> None:
        if self.beside.stopped.is_set():
            # The engine is about to close.
            return
        if order.profile:
            self.watch.again()
            self._reports_times = self.beside.job.rank < PROFILED_RANKS
        if order.what == "look":
            found = self._measured(store)
            if self._coordinator is not None:
                self._coordinator.looked(found)
            else:
                # This rank may have to plan for those that are left.
                self.knowledge.cluster = found
        elif order.what == "prepare":
            self._prepare(order.key, now, store)
        elif order.what == "begin":
            self._prepared = ""
            self.epochs.learn(self.epochs.current.after({PLAN: order.key}))

    def _measured(self, store: Store) -> Cluster:
        pauses = Pauses(store, self._tag, self._next_step, self._budget.spend, PATIENCE_S)
        self._looking.set()
        try:
            return Look(self.beside.job, self._engine, pauses).cluster()
        finally:
            self._looking.clear()

    def _next_step(self) -> bool:
        """Wait until more may be sent and a step has ended: nothing else is sent until the first gradients of the next step."""
        self.beside.stopped.wait(self._budget.wait_s(time.monotonic()))
        self._stepped.clear()
        if not self.beside.stopped.is_set():
            self._stepped.wait(STEP_PATIENCE_S)
        return not self.beside.stopped.is_set()

    def _prepare(self, key: str, now: Plan, store: Store) -> None:
        """Prepare the programs of a plan, and of the one in force, to which the job may return."""
        given = store.get(f"{self._prefix}/{key}", self.beside.job.settings.start_timeout_s)
        try:
            kept = self._plans.hold(now)
            self._plans.hold(typed.of_builtins(given, Plan))
        except Error as error:
            self._refused = key, error.summary
            return
        self._plans.forget_all_but({kept, key})
        self._prepared = key

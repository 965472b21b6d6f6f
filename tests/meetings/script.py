"""A training script in a simulated job, step by step as `hocket.training.elastic` makes its steps, around a real `Membership`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from hocket.errors import EpochError, Error, PeerError, RendezvousError
from hocket.members.member_messages import Prepares, Regroup
from hocket.members.membership import Membership
from hocket.settings import Settings
from hocket.training.elastic.absent import check_finished, without_the_absent
from tests.meetings.engine import Engine
from tests.meetings.network import Network, Worker, hosts_of

LOADS_S = 2.5
"""What a rank has to make before its first step with others, at most: sometimes nothing."""
COMPUTES_S = 0.02
"""A step, at most."""
HANGS_S = 0.1
"""How long a script that hung may take to go on."""

Step = tuple[int, ...]
"""The members whose gradients it is the mean of."""


@dataclass(frozen=True)
class Connected:
    """To others, by rank. `generation`: of which they are, if that is known."""

    workers: list[Worker]
    fabric: dict[int, Engine]
    engine: Engine
    generation: int | None = None

    def close(self) -> None:
        self.engine.close()


class Script:
    """Of one worker.

    Attributes:
        made: the steps that it has made, or was given as it joined.
        trains: it has begun to.
        left: it has left in order.
        ends_early: its loop ends before those of others.
        passed_by: most steps that it has begun, one after the other, beside a process that it was to meet before.
        reports: it reports what stands.
        why: what it has ended of, if not in order.
    """

    def __init__(self, network: Network, worker: Worker, settings: Settings, steps: int) -> None:
        self._network, self._work, self.worker = network, network.work, worker
        self._settings, self._steps = settings, steps
        self.made: list[Step] = []
        self.trains = self.left = self.ends_early = self.reports = False
        self.passed_by = self._passes_by = 0
        self.why: Error | None = None
        self.membership: Membership | None = None
        self._generation = 0
        self._fabric: dict[int, Engine] = {}
        self._missed = self._awaited = self._meets = False
        self._in_force = 0
        self._late: Callable[[], None] | None = None

    @property
    def _member(self) -> Membership:
        assert self.membership is not None
        return self.membership

    def found(self, rank: int, workers: list[Worker], fabric: dict[int, Engine]) -> None:
        self._run(lambda: self._begin(rank, workers, fabric))

    def join(self) -> None:
        """A job that trains."""
        self._run(self._come)

    def _run(self, begin: Callable[[], object]) -> None:
        try:
            begin()
            self.trains = True
            while len(self.made) < self._steps and not self.ends_early:
                self._step()
            if self._late is not None:
                with contextlib.suppress(RendezvousError):
                    self._exchange_late()
            self._member.finish(self._settings.timeout_s)
        except SystemExit:
            pass
        except Error as error:
            self.why = error
        finally:
            if not self.worker.dead:
                if self.membership is not None:
                    self.membership.close()
                self.worker.end(0 if self.why is None else 1)

    def _begin(self, rank: int, workers: list[Worker], fabric: dict[int, Engine]) -> None:
        self._rank = rank
        self._go_on_with(self._connected(rank, workers, fabric), tuple(range(len(workers))))
        self._contact()
        self._load()
        self._member.begin(self._job(), self._engine)

    def _contact(self) -> None:
        self.membership = Membership(self._settings, b"", self.worker.name)
        self.membership.preparing.make = self._prepare

    def _connected(self, rank: int, workers: list[Worker], fabric: dict[int, Engine]) -> Connected:
        engine = Engine(self._work, workers, rank, self._settings.silence_max_s(elastic=True))
        engine.connect(fabric)
        return Connected(workers, fabric, engine)

    def _go_on_with(self, made: Connected, numbers: tuple[int, ...]) -> None:
        self._workers, self._fabric, self._engine = made.workers, made.fabric, made.engine
        self._numbers = numbers
        self._counted = self._members = tuple(range(len(numbers)))

    def _prepare(self, order: Prepares) -> Connected:
        """Beside training."""
        assert order.store is not None
        rank, world = order.members.index(self._member.number), len(order.members)
        store, timeout_s = self._network.stores[order.store], self._settings.silence_max_s(elastic=True)
        store.enter(rank, self.worker)
        workers = store.gather("hosts", rank, world, self.worker, timeout_s)
        self._load()
        fabric: dict[int, Engine] = store.gather("fabric", rank, world, {}, timeout_s)[0]
        made = self._connected(rank, workers, fabric)
        try:
            store.gather("terms", rank, world, None, timeout_s)
        except Error:
            made.close()
            raise
        self._load()
        return replace(made, generation=order.generation)

    def _job(self) -> Any:
        hosts = hosts_of(self._workers)
        return SimpleNamespace(
            settings=self._settings,
            secret=b"",
            rank=self._rank,
            host=hosts[self._rank],
            hosts=hosts,
            world=len(hosts),
            members=self._numbers,
        )

    def _come(self) -> None:
        host = self.worker.host
        self._contact()
        self._member.joining.knock(host, self._settings.member)
        self._member.joining.ready()
        order = self._member.joining.meeting(self.worker.name)
        while True:
            self.worker.member = self._member.number
            try:
                return self._meet_once(order, joins=True)
            except Error as error:
                order = self._next_meeting(order.generation, error)

    def _meet(self, order: Regroup) -> None:
        while True:
            try:
                return self._meet_once(order, joins=False)
            except Error as error:
                order = self._next_meeting(order.generation, error)

    def _next_meeting(self, after: int, error: Error) -> Regroup:
        if isinstance(error, RendezvousError | PeerError) and error.missing:
            self._member.could_not_meet(after, error.missing)
        try:
            return self._member.next_meeting(after, error.summary)
        except RendezvousError as none:
            raise error from none

    def _meet_once(self, order: Regroup, *, joins: bool) -> None:
        if self._fabric:
            self._engine.close()
        self._generation = order.generation
        store, world = self._network.stores[order.store], len(order.members)
        rank = self._rank = order.members.index(self._member.number)
        made = self._member.preparing.take(order)
        assert made is None or isinstance(made, Connected)
        assert made is None or made.generation == order.generation
        workers = []
        if made is None:
            store.enter(rank, self.worker)
            workers = store.gather("hosts", rank, world, self.worker, self._settings.start_timeout_s)
        given = store.gather(
            "standing", rank, world, None if joins else self.made, self._settings.start_timeout_s
        )
        holders = [each for each in range(world) if given[each] is not None]
        self.made = list(given[holders[0]])
        if made is None:
            fabric = store.gather("fabric", rank, world, {}, self._settings.start_timeout_s)[0]
            made = self._connected(rank, workers, fabric)
        self._go_on_with(made, order.members)
        self._engine.launch("state of policies", 0)
        self._engine.wait("state of policies")
        self._load()
        self._member.begin(
            self._job(),
            self._engine,
            generation=order.generation,
            steps=len(self.made),
        )
        self._missed = False
        self._member.resumed(again=False)
        self._late = lambda: self._hand_over(rank in holders, [order.members[each] for each in holders])

    def _load(self) -> None:
        if self._work.random.random() < 0.2:
            self._work.pause(self._work.random.uniform(0, LOADS_S))

    def _hand_over(self, holds: bool, holders: list[int]) -> None:
        if holds:
            self._member.handover.give(self._generation, b"%d" % self._generation)
            return
        timeout_s = self._settings.with_another_launcher_s(self._settings.timeout_s)
        given = self._member.handover.take(self._generation, holders, timeout_s)
        assert given in (None, b"%d" % self._generation)

    def _exchange_late(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            late()

    def _step(self) -> None:
        self._end_if_it_leaves()
        self._exchange_late()
        self._pass_by()
        self._missed = False
        self._compute(self._work.random.uniform(0, COMPUTES_S))
        with self._noting_what_is_missed():
            self._cast()
        self._reduce()
        self.made.append(tuple(self._numbers[each] for each in self._counted))
        if self.reports:
            self._member.progress.stepped(len(self.made), ranks=len(self._counted), samples=0)
        self._part()
        # The optimizer's step.
        self._end_if_it_leaves()
        self._meet_newcomers()

    def _pass_by(self) -> None:
        """Note whether an epoch is in force with some that this generation has not met."""
        part = self._member._contact.part
        unmet = not set(part.members) <= set(part.ranks)
        self._passes_by = self._passes_by + 1 if unmet else 0
        self.passed_by = max(self.passed_by, self._passes_by)

    def _compute(self, time_s: float = 0.0) -> None:
        """The script's own work, in which it may hang."""
        if time_s:
            self._work.pause(time_s)
        while self.worker.hangs:
            self._work.pause(HANGS_S)

    def _end_if_it_leaves(self) -> None:
        if self.left:
            raise SystemExit(0)

    def _cast(self) -> None:
        self._in_force, self._awaited = self._member.in_force, bool(self._member.newcomers)
        self._engine.launch(f"votes of {len(self.made)}", self._member.vote)

    @contextlib.contextmanager
    def _noting_what_is_missed(self) -> Any:
        try:
            yield
        except EpochError:
            self._missed = True

    def _reduce(self) -> None:
        step = len(self.made)
        if self._stands(step):
            self._counted = self._members
            return
        while not self._go_on(step):
            with self._noting_what_is_missed():
                self._cast()
            if self._stands(step):
                self._counted = self._members
                return

    def _stands(self, step: int) -> bool:
        if self._missed:
            return False
        try:
            with without_the_absent(self._member):
                agreed = min(self._wait(f"votes of {step}", step))
                self._meets = self._awaited or agreed != self._in_force
                self._compute()
                if self._member.prepared(step, agreed):
                    self._barrier(f"end of {step}", step)
                self._compute()
                if not self._member.done(step):
                    return False
        except EpochError:
            return False
        return True

    def _barrier(self, name: str, step: int) -> None:
        self._engine.launch(name, 0)
        self._wait(name, step)

    def _wait(self, name: str, step: int) -> list[int]:
        return self._engine.wait(name, self._settings.timeout_s, lambda: self._check_finished(step))

    def _check_finished(self, step: int | None = None) -> None:
        step = len(self.made) if step is None else step
        check_finished(self._member.finished, self._members, self._job(), step)

    def _go_on(self, step: int) -> bool:
        self._counted = self._members
        while True:
            epoch = self._member.next_epoch(self._settings.timeout_s)
            if epoch is None:
                self._let_go()
                return True
            self._members = epoch.members
            stands = self._member.committed > step
            self._missed = False
            if self._engine.epoch != epoch.number or self._engine._why is not None:
                continue
            self._member.resumed(epoch.number, again=not stands)
            return stands

    def _part(self) -> None:
        members = self._member.without_leavers()
        if members is None or self.left:
            return
        if not set(self._members) <= set(members):
            with contextlib.suppress(EpochError), without_the_absent(self._member):
                self._barrier(f"parting after {len(self.made)}", len(self.made) - 1)
            if self._rank not in members:
                self._member.wait_for_release(self._settings.timeout_s)
                self._let_go()
                return
            self._go_on(len(self.made) - 1)

    def _let_go(self) -> None:
        self.left = True
        self._engine.close()

    def _meet_newcomers(self) -> None:
        while self._meets and self._member.newcomers:
            order = None
            with contextlib.suppress(EpochError), without_the_absent(self._member):
                order = self._member.at_edge(self._settings.timeout_s, self._check_finished)
            if order is None:
                self._go_on(len(self.made) - 1)
                continue
            self._meet(order)

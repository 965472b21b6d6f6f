"""Duty beside training that calls policies' `on_timer`, shares statistics and proposals with all ranks, and begins epochs.

The timers of all ranks meet at the store once per tick. An exception in a handler ends the job on every rank, with the traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hocket.errors import PolicyError, RendezvousError
from hocket.job.store.store import Store
from hocket.policy.control import Control, Statistics
from hocket.policy.epoch import Epochs
from hocket.policy.observed import Guard
from hocket.policy.policy import Policy, Value
from hocket.policy.topology import Topology
from hocket.training.beside.beside import Beside, Duty
from hocket.training.memory.scopes import Scope


class Timer(Duty):
    """Timer of a job's policies."""

    stays = "policies' timers stand still"

    def __init__(
        self,
        scopes: Sequence[Scope],
        beside: Beside,
        *,
        topology: Topology,
        epochs: Epochs,
        guards: Callable[[], list[Guard]],
        before: Timer | None = None,
    ) -> None:
        """Prepare. `scopes`: the policies. `guards` returns those of the current epoch. `before`: the timer that
        this one replaces, since the members of the job have changed; proposals made there are made here."""
        self.statistics = Statistics()
        self.beside, self._guards = beside, guards
        self._scopes, self._topology, self._epochs = tuple(scopes), topology, epochs
        given_s = beside.job.settings.timer_interval_s
        intervals_s = [given_s or each.policy.timer_interval_s for each in scopes]
        self.first_s = min(intervals_s)
        # Whole ticks, so that all ranks call the same handlers at the same tick.
        self._every = [max(1, round(each_s / self.first_s)) for each_s in intervals_s]
        self._changes: dict[str, Value] = {} if before is None else before._changes
        self._calling = self._scopes[0]
        self._tick = 0
        # The values that handlers see: all ranks switch to an epoch's values at the same tick, so that negotiations match.
        self._seen = epochs.current
        self._norm_wanted = True

    @property
    def needed(self) -> bool:
        """True if a policy has handlers beside training, or made decisions by statistics."""
        handlers = ("on_timer", "on_worker_added", "on_worker_removed")
        kinds = [type(scope.policy) for scope in self._scopes]
        return bool(self._guards()) or any(
            getattr(kind, each) is not getattr(Policy, each) for kind in kinds for each in handlers
        )

    def begin(self, added: Iterable[int]) -> None:
        for worker in added:
            self._call_all("on_worker_added", worker)

    def wants_norm(self) -> bool:
        """Return whether the norm of gradients is due: it is recorded once per tick, since it costs a pass over them."""
        wanted, self._norm_wanted = self._norm_wanted, False
        return wanted

    def worker_removed(self, worker: int) -> None:
        """Tell the policies that a rank is gone."""
        self._call_all("on_worker_removed", worker)

    def gather(self, key: str, value: float) -> list[float]:
        given = self.beside.gather("timer/negotiate", {"key": key, "value": value})
        keys = {each["key"] for each in given}
        if len(keys) > 1:
            raise PolicyError(f"ranks negotiate in different orders: {', '.join(sorted(keys))}")
        return [each["value"] for each in given]

    def propose(self, changes: Mapping[str, Value]) -> None:
        """Keep changes for the end of this tick."""
        self._changes.update(self._calling.of_job(changes))

    def turn(self, _store: Store) -> float:
        self._tick += 1
        self._norm_wanted = True
        for scope, every in zip(self._scopes, self._every, strict=True):
            if self._tick % every == 0:
                self._call(scope, "on_timer", self.statistics)
        self._share()
        return self.first_s

    def _share(self) -> None:
        mine = {
            "statistics": self.statistics.published(),
            "changes": self._changes,
            "settled": self._epochs.settled,
            "epoch": self._epochs.current.number,
        }
        everyone = self.beside.gather("timer/tick", mine)
        if not self.beside.stopped.is_set():
            self._changes = {}
        snapshot = [each["statistics"] for each in everyone]
        self.statistics.take_others(snapshot)
        # Changes that arrive while an epoch is about to begin, or while ranks are in different epochs, are repeated.
        if any(not each["settled"] or each["epoch"] != everyone[0]["epoch"] for each in everyone):
            self._changes = {**mine["changes"], **self._changes}  # type: ignore[dict-item]
            return
        current = self._epochs.current
        if self._seen is not current:
            self._seen = current
            self.statistics.forget()
        changes: dict[str, Value] = {}
        for each in reversed(everyone):
            changes.update(each["changes"])  # the lowest rank has the last word
        # Guards read the statistics of all ranks, which all now have, so all ranks reach the same result.
        broken = self._enough(snapshot) and any(not guard.holds(snapshot) for guard in self._guards())
        changed = {name: value for name, value in changes.items() if current.agreed.get(name) != value}
        if changed or broken:
            self._epochs.learn(current.after({**current.agreed, **changed}, snapshot))

    def _enough(self, snapshot: list[Mapping[str, list[float]]]) -> bool:
        return all(len(each.get("step_time", ())) > 1 for each in snapshot)

    def _call_all(self, handler: str, argument: Any) -> None:
        for scope in self._scopes:
            self._call(scope, handler, argument)

    def _call(self, scope: Scope, handler: str, argument: Any) -> None:
        self._calling = scope
        control = Control(
            self.beside.job.rank,
            self._topology,
            agreed=scope.own(self._seen.agreed),
            statistics=self.statistics,
            exchange=self,
            turn=f"{scope.prefix}{handler} {self._tick}",
        )
        try:
            getattr(scope.policy, handler)(control, argument)
        except RendezvousError:
            raise
        except Exception as error:
            text = "".join(traceback.format_exception(error)).rstrip()
            raise PolicyError(f"{type(scope.policy).__name__}.{handler} raised:\n{text}") from error

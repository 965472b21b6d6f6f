"""Thread beside training: one for each model, with one connection to the store, on which duties take turns.

No step waits for it; native code runs without the GIL. Duties are due at sums of the intervals that they ask for, equal on all
ranks, not at moments of a clock: all ranks take turns in one order, and no two wait for each other in different meetings. A look
at the network delays no timer, since a plan has policies or an autopilot, never both.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hocket.errors import EpochError, PeerError, PolicyError, RendezvousError, StoreGoneError
from hocket.job.rendezvous import Job
from hocket.job.store.store import Store
from hocket.members.members_store import Among, MembersStore

PATIENCE_S = 3600.0
"""Time that a meeting waits for the slowest rank: long, since no step waits for a meeting."""

_numbers = itertools.count()
"""Numbers of this process's threads: equal on all ranks, which distribute their models in the same order."""

log = logging.getLogger("hocket.store")


class Duty:
    """Work in turns, on all ranks. `stays`: words for what goes on after the launcher of an elastic job has died with its store."""

    stays: str
    beside: Beside
    first_s: float
    """Seconds before the first turn."""

    def begin(self, added: Iterable[int]) -> None:
        """Prepare for the first turn, in the thread that trains. `added`: workers that are new to this rank."""

    def turn(self, store: Store) -> float:
        """Take a turn, and return the seconds to the next one, equal on all ranks."""
        raise NotImplementedError

    def stop(self) -> bool:
        """Hear that no other turn follows; return whether a turn that runs must end first, since other ranks take part in it."""
        return False


class Beside:
    """Thread of a model, and in an elastic job of one epoch of members (`among`). Runs from `start` to `stop`."""

    def __init__(
        self, job: Job, fail: Callable[[str, BaseException | None], None], among: Among | None = None
    ) -> None:
        """Prepare without running anything. `fail` ends the job on all ranks."""
        self.job, self.among = job, among
        self.number = next(_numbers)
        self.name = str(self.number) if among is None else among.name
        self.stopped = threading.Event()
        self._fail = fail
        self._store: Store | None = None
        self._duties: Sequence[Duty] = ()
        self._thread = threading.Thread(target=self._run, name="hocket-beside", daemon=True)

    def gather(self, name: str, value: Any) -> list[Any]:
        """Gather a value of all ranks. RendezvousError: a rank is lost. PolicyError: there is no connection yet."""
        if self._store is None:
            raise PolicyError(
                "a handler negotiates where ranks do not call it alike\n"
                "hint: negotiate in `on_timer`; in an elastic job, the handlers of workers propose alone"
            )
        return self._store.gather(f"{name}/{self.name}", self.job.rank, self.job.world, value, PATIENCE_S)

    def start(self, duties: Sequence[Duty], added: Iterable[int] | None = None) -> None:
        """Connect and begin. `added`: workers that are new to this rank; None: all. RendezvousError: the store does not answer."""
        if self.among is None:
            self._store = self._connected()
        new = list(range(self.job.world) if added is None else added)
        for each in duties:
            each.begin(new)
        self._duties = duties
        self._thread.start()

    def stop(self, *, retires: bool = False) -> None:
        """End, without waiting for a handler that hangs. `retires`: the job goes on, and no rank comes to turns any more.

        In an elastic job no rank may come, either; the wire ends a turn between ranks with the epoch of members.
        """
        self.stopped.set()
        if any([each.stop() for each in self._duties]) and self.among is None:  # noqa: C419  # all are to hear it
            self._thread.join(self.job.settings.timeout_s)
        if (retires or self.among is not None) and self._store is not None:
            self._store.hang_up()

    def _run(self) -> None:
        duties = self._duties
        try:
            self._take_turns({each: each.first_s for each in duties})
        except StoreGoneError:
            if self.among is not None and self.job.rank == 0 and not self.stopped.is_set():
                log.warning(
                    "the launcher is gone: %s until ranks join", " and ".join(each.stays for each in duties)
                )
        except (RendezvousError, PeerError, EpochError):
            # A rank has left: in order, at the end of training, or dead, in which case the wire's error names it.
            pass
        except Exception as error:  # whatever it is, the others would wait for this thread
            # Once it is stopped, the engine may be of other members, or closed.
            if self.among is None or not self.stopped.is_set():
                self._fail(f"{type(error).__name__}: {error}", error)
        finally:
            self.stopped.set()
            # A duty refers back to this object, and both would keep the engine's memory and descriptors.
            self._duties = ()
            if self._store is not None:
                self._store.leave()

    def _connected(self) -> Store:
        job, among = self.job, self.among
        who = f"the thread beside training of rank {job.rank} on {job.host}"
        if among is not None:
            return MembersStore(job, among.everyone, who)
        return Store(
            job.store.address, job.secret, rank=None, who=who, timeout_s=job.settings.start_timeout_s
        )

    def _take_turns(self, due_s: dict[Duty, float]) -> None:
        now_s = 0.0
        while True:
            duty = min(due_s, key=due_s.__getitem__)
            if self.stopped.wait(due_s[duty] - now_s):
                return
            if self._store is None:
                # An elastic job connects late, so as not to delay the step that an epoch of members begins with.
                self._store = self._connected()
            now_s = due_s[duty]
            due_s[duty] = now_s + duty.turn(self._store)

"""The engines of one generation in a simulated job: what a step waits for, and how a rank learns that it has lost another one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hocket.errors import EpochError, PeerError
from tests.meetings.clockwork import Clockwork, Condition
from tests.meetings.network import DELAY_S, END_S, INSTANT_S, Worker

CONNECT_S = 5.0
LOOK_S = 1.0
"""How often a wait looks whether it is in vain, at least."""


class Engine:
    """One rank's, with what `Membership` and sessions ask of `_native.Engine`.

    Attributes:
        lost: ranks that were lost in the epoch in force.
    """

    def __init__(self, work: Clockwork, workers: Sequence[Worker], rank: int, silence_max_s: float) -> None:
        """Not connected yet. `workers`: by rank."""
        self._work, self._workers, self.rank, self._silence_max_s = work, workers, rank, silence_max_s
        self.worker = workers[rank]
        self._peers: Sequence[Engine] = ()
        self.epoch = 1
        self.members = tuple(range(len(workers)))
        self._why: str | None = None
        self.closed = False
        self.lost: list[int] = []
        self._ever_lost: set[int] = set()
        self._sums: dict[tuple[int, str], dict[int, int]] = {}
        self._last_s: dict[int, float] = {}
        self._changed = Condition(work)

    def connect(self, fabric: dict[int, Engine]) -> None:
        """To all ranks, which do the same. PeerError: some do not come."""
        fabric[self.rank] = self
        until_s = self._work.now_s + CONNECT_S
        while len(fabric) < len(self._workers):
            if self._work.now_s >= until_s:
                missing = [rank for rank in range(len(self._workers)) if rank not in fabric]
                raise PeerError(f"ranks {missing} did not connect", why="timeout", missing=missing)
            self._work.pause(0.005)
        self._peers = [fabric[rank] for rank in range(len(self._workers))]
        for rank, worker in enumerate(self._workers):
            if worker.dead:
                self._learn_of(rank)
            else:
                worker.ended.append(lambda rank=rank: self._learn_of(rank))

    @property
    def gone(self) -> list[int]:
        near = [rank for rank in self._ever_lost if self._workers[rank].host == self.worker.host]
        return [rank for rank in near if self._workers[rank].dead]

    def launch(self, name: str, value: int) -> None:
        """This rank's part of a sum. EpochError: the epoch has ended."""
        self._check()
        self._take(self.epoch, name, self.rank, value)
        for rank in self.members:
            if rank != self.rank:
                self._send(rank, self.epoch, name, value)

    def wait(
        self, name: str, timeout_s: float = math.inf, meanwhile: Callable[[], None] = lambda: None
    ) -> list[int]:
        """All members' values. EpochError: the epoch has ended. PeerError: they have not come in time, or `meanwhile` raises it."""
        until_s = self._work.now_s + timeout_s
        while len(self._sums.get((self.epoch, name), {})) < len(self.members):
            self._check()
            meanwhile()
            if self._work.now_s >= until_s:
                raise PeerError(f"{name} is not complete", why="timeout")
            self._changed.wait(min(LOOK_S, until_s - self._work.now_s))
        return list(self._sums[self.epoch, name].values())

    def interrupt(self, reason: str) -> None:
        if self._why is None:
            self._why = reason
        self._changed.notify_all()

    def quiesce(self, reason: str, timeout_s: float) -> None:
        del timeout_s
        self.interrupt(reason)

    def resume(self, epoch: int, members: Sequence[int], timeout_s: float, *, left: Sequence[int]) -> None:
        del timeout_s
        if self.closed:
            raise EpochError("the engine is closed")
        for rank in set(self.members) - set(members) - set(left):
            if self._workers[rank].host == self.worker.host:
                self._workers[rank].end(137)
        if not self._ever_lost.isdisjoint(members):
            self.lost = [rank for rank in members if rank in self._ever_lost]
            raise EpochError("a member is lost")
        self.epoch, self.members, self._why, self.lost = epoch, tuple(members), None, []
        self._sums = {key: value for key, value in self._sums.items() if key[0] >= epoch}

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.interrupt("it is closed")
            for peer in self._peers:
                if peer is not self:
                    peer._learn_of(self.rank)

    def falls_silent(self, rank: int) -> None:
        self._work.after(self._silence_max_s, lambda: self._hears_nothing_of(rank))

    def _hears_nothing_of(self, rank: int) -> None:
        worker = self._workers[rank]
        if worker.cut or worker.stopped or self.worker.cut:
            self._lose(rank)

    def _check(self) -> None:
        if self._why is not None:
            raise EpochError(self._why)

    def _send(self, to: int, epoch: int, name: str, value: int) -> None:
        peer = self._peers[to]
        at_s = max(
            self._last_s.get(to, 0) + INSTANT_S, self._work.now_s + self._work.random.uniform(0, DELAY_S)
        )
        self._last_s[to] = at_s
        arrives = lambda: self._arrives(peer, lambda: peer._take(epoch, name, self.rank, value))  # noqa: E731
        self._work.after(at_s - self._work.now_s, arrives)

    def _arrives(self, peer: Engine, do: Callable[[], object]) -> None:
        for end in (self.worker, peer.worker):
            if end.cut:
                end.held.append(lambda: self._arrives(peer, do))
                return
        # Whatever was under way when a connection ended is lost.
        if self.rank not in peer._ever_lost:
            do()

    def _take(self, epoch: int, name: str, rank: int, value: int) -> None:
        if epoch >= self.epoch and not self.closed:
            self._sums.setdefault((epoch, name), {})[rank] = value
            self._changed.notify_all()

    def _learn_of(self, rank: int) -> None:
        if rank != self.rank:
            self._work.after(self._work.random.uniform(0, END_S), lambda: self._lose_by_end(rank))

    def _lose_by_end(self, rank: int) -> None:
        worker = self._workers[rank]
        if worker.cut or self.worker.cut:
            (worker if worker.cut else self.worker).held.append(lambda: self._lose(rank))
        else:
            self._lose(rank)

    def _lose(self, rank: int) -> None:
        if rank in self._ever_lost or self.closed:
            return
        self._ever_lost.add(rank)
        if rank in self.members:
            self.lost.append(rank)
            self.interrupt(f"rank {rank} is lost")

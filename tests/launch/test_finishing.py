"""A member whose script has ended, while others go on: over real sockets, without training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.errors import PeerError
from hocket.job.store.server import Server
from hocket.members.coordination import Coordination
from hocket.members.member_limits import Limits
from hocket.members.membership import Membership
from hocket.members.stores import Stores
from hocket.settings import Settings

SECRET = b"0123456789abcdef"
HOSTS = ("127.0.0.1",)
PATIENCE_S = 30.0


class Engine:
    lost = gone = ()

    def quiesce(self, reason: str, timeout_s: float) -> None: ...

    def interrupt(self, reason: str) -> None: ...

    def resume(self, *arguments: object, **named: object) -> None: ...


class Pair:
    """Two members that have met, of whom the second one's script has ended."""

    def __init__(self, server: Server, coordination: Coordination, threads: ThreadPoolExecutor) -> None:
        self._server, self._coordination = server, coordination
        settings = Settings(coordinator=f"127.0.0.1:{server.port}", start_timeout_s=PATIENCE_S)
        self.members = [Membership(settings, SECRET, f"rank {rank}") for rank in range(2)]
        engine: Any = Engine()
        jobs: list[Any] = [
            SimpleNamespace(
                settings=settings, rank=rank, host=host, hosts=("a", "b"), world=2, members=(0, 1)
            )
            for rank, host in enumerate("ab")
        ]
        begun = [
            threads.submit(member.begin, job, engine) for member, job in zip(self.members, jobs, strict=True)
        ]
        for each in begun:
            each.result(PATIENCE_S)
        self.finishes: Future[None] = threads.submit(self.members[1].finish, PATIENCE_S)
        self.until(lambda: 1 in self.members[0].finished)

    def until(self, holds: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    def is_cut_off(self) -> None:
        """The second one, as far as the coordinator knows."""
        self._server.call(lambda: self._coordination._unlinked(1))


@pytest.fixture
def pair() -> Iterator[Pair]:
    limits = Limits(
        members_min=1, members_max=2, heartbeat_s=60.0, join_patience_s=60.0, rejoin_patience_s=0.0
    )
    coordination = Coordination(2, limits, Stores("127.0.0.1", HOSTS, SECRET, (0, 0)))
    with Server(HOSTS, 0, SECRET, coordination) as server, ThreadPoolExecutor() as threads:
        made = Pair(server, coordination, threads)
        try:
            yield made
        finally:
            for each in made.members:
                each.close()


def test_who_was_shut_out_in_its_last_step_does_not_end_well(pair: Pair) -> None:
    """Broken: a rank would leave a checkpoint of a step that the others have done again without it, and end with 0."""
    pair.is_cut_off()
    pair.members[0].give_up(1)
    with pytest.raises(
        PeerError, match="rank 1 on b: evicted in epoch 2: the coordinator and 1 member cannot hear it"
    ):
        pair.finishes.result(PATIENCE_S)


def test_who_ends_before_the_others_ends_well(pair: Pair) -> None:
    """Broken: a script that has done all that it wanted to would fail because others do more."""
    pair.members[0].give_up(1)
    pair.finishes.result(PATIENCE_S)
    pair.until(lambda: pair.members[0].in_force == 2)

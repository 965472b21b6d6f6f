"""`Communicator`: what a group shares with its present members, and gives up when they change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakMethod

from hocket import _native
from hocket.errors import Error
from hocket.job.rendezvous import LINGER_S
from hocket.torch.backend.collectives import Collectives, collectives_of
from hocket.torch.backend.meeting import Meeting
from hocket.torch.backend.monitored import MonitoredBarrier
from hocket.torch.backend.node import Node
from hocket.torch.backend.recorder import Entry
from hocket.torch.backend.works import Works

T = TypeVar("T")


class Communicator:
    """One configuration of a group, to which it does not refer.

    Attributes:
        node: this process in the job of the members.
        ranks: ranks of the members in that job, by their rank in the group; `rank`: this one's in the group.
        number: of the group in the job; tags and programs of different groups never match.
        works: order of the group's calls.
        monitored: barriers that name missing ranks.
        collectives: mover of bytes.
        record: of the group's calls, if dumps are wanted.
    """

    def __init__(
        self,
        node: Node,
        ranks: Sequence[int],
        *,
        rank: int,
        store: Any,
        name: str,
        timeout_s: float,
        describe: Callable[[], str],
        failing: Callable[[BaseException], None],
    ) -> None:
        """Meet the other members through `store`, a part of torch's store for this group and configuration alone.

        `describe` returns what the group is for. `failing` is called with the error of a call, before its caller learns of it. Both
        are methods of the group.
        """
        self.node, self.ranks, self.rank = node, list(ranks), rank
        place = f"rank {node.job.rank} on {node.job.host}"
        self.monitored = MonitoredBarrier(store, rank=rank, world=len(ranks), place=place)
        self.number = _agree_on_number(store, rank, ranks[0], timeout_s)
        self.collectives: Collectives = collectives_of(node, ranks, store, self.number, timeout_s)
        self.works = Works(name, _while_there(failing, None))
        self._name, self._progress = name, node.job.progress
        self._progress.joined()
        described = _while_there(describe, "")
        self.record = None if node.recorder is None else node.recorder.group(name, described, ranks)
        node.works.append(self.works)

    def move(
        self, what: str, limit_s: float, act: Callable[[Collectives], None], entry: Entry | None
    ) -> None:
        """Run a collective in its turn. `what`: its name; `entry`: its record, if dumps are wanted."""
        # Two looks at the clock, and no calls besides: small collectives take some microseconds.
        self._progress.calls[self._name] = what, _native.now_ns()
        if entry is not None:
            entry.begin()
        try:
            self.collectives.set_timeout(limit_s)
            act(self.collectives)
        finally:
            self._progress.calls.pop(self._name, None)
            self._progress.since_ns = _native.now_ns()
        if entry is not None:
            entry.end()

    def leave(self, linger_s: float = LINGER_S) -> None:
        """Leave after the calls that are queued, each within its time-out; later ones are refused. The last group of the process
        leaves the job, too; `linger_s`: as in `Job.close`."""
        self.works.drain()
        self.node.works.remove(self.works)
        self.collectives.leave()
        if not self.node.works:
            self.node.close(linger_s)

    def dropped(self) -> None:
        """Leave, as nothing refers to the group any more."""
        if self.node.is_open:
            self.leave(linger_s=0.0)

    def abandon(self, reason: str, cause: tuple[int, str] | None = None) -> None:
        """Leave at once, and the job with it: calls of this group fail here and on the other members, with the reason."""
        with contextlib.suppress(Error):  # the job has ended before, and its calls have failed
            self.node.engine.abort(reason, cause)
        self.node.close(linger_s=0.0)


def _while_there(method: Callable[..., T], otherwise: T) -> Callable[..., T]:
    """Return a function that calls this method as long as its object is there, and returns `otherwise` after that."""
    weak = WeakMethod(method)

    def call(*arguments: object) -> T:
        there = weak()
        return otherwise if there is None else there(*arguments)

    return call


def _agree_on_number(store: Any, rank: int, first: int, timeout_s: float) -> int:
    """Return the group's number in the job. `first`: the group's first rank, in the job."""
    if rank == 0:
        counter = store
        while hasattr(counter, "underlying_store"):
            counter = counter.underlying_store
        store.set("hocket/number", str(counter.add("hocket/groups", 1)))
    return int(Meeting(store, timeout_s).read("hocket/number", first))

"""Learning with steps alone in one process: a model for each rank, with the arithmetic of sessions (`hocket.torch.local`).

`tests/torch/test_learner.py` compares it with a reference that has none of Hocket's code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch

from benches.delays.working import Copy
from hocket.artefacts.plan import Schedule
from hocket.errors import UsageError
from hocket.torch.local import Local
from hocket.training.memory.anchor import Arrival, Pending
from hocket.training.memory.buckets import LoadedBucket


class Progress(NamedTuple):
    """Part of a `LoadedBucket`: how far one copy came in a turn, by name."""

    names: tuple[str, ...]
    views: list[torch.Tensor]


@dataclass
class Turn:
    """Progress of all copies in a bucket, over so many iterations, which is `due` with one."""

    iterations: int
    due: int
    own: list[Progress]


@dataclass
class Bucket:
    """Turns of a bucket: iterations of the open one, and those under way."""

    open: int = 0
    under_way: deque[Turn] = field(default_factory=deque)


class Apart:
    """Copies of a model that step alone by a schedule, one for each rank."""

    def __init__(self, copies: Sequence[Copy], schedule: Schedule) -> None:
        """Begin. UsageError: the schedule is another one."""
        if schedule.outer is None:
            raise UsageError("apart: the schedule has no steps alone")
        self.copies, self._schedule = copies, schedule
        self._anchors = [
            Local(each.model, each.optimizer, dict(each.model.named_parameters())) for each in copies
        ]
        for anchor in self._anchors:
            anchor.begin(schedule.outer)
        self._buckets = [Bucket() for _ in copies[0].buckets]
        self._made = 0

    def learn(self, *losses: torch.Tensor) -> None:
        """Run one iteration: backward and step of each copy, and an exchange if one is due."""
        for copy, loss in zip(self.copies, losses, strict=True):
            copy.optimizer.zero_grad()
            loss.backward()
            copy.optimizer.step()
        for at, bucket in enumerate(self._buckets):
            bucket.open += 1
            for turn in self._schedule.turns[at]:
                if turn.last % self._schedule.period == self._made % self._schedule.period:
                    self._depart(at, turn.due.iteration - turn.last)
        self._made += 1
        self._arrive()

    def load_into(self, model: torch.nn.Module) -> None:
        """Load what a job would save now: the anchor."""
        model.load_state_dict(self.copies[0].model.state_dict())

    def _depart(self, at: int, late: int) -> None:
        bucket, found = self._buckets[at], []
        for number, (copy, anchor) in enumerate(zip(self.copies, self._anchors, strict=True)):
            views = [torch.empty_like(each) for each in copy.buckets[at]]
            progress = Progress(copy.names[at], views)
            before = [cast(LoadedBucket, turn.own[number]) for turn in bucket.under_way]
            anchor.depart(cast(LoadedBucket, progress), before)
            found.append(progress)
        bucket.under_way.append(Turn(bucket.open, self._made + late, found))
        bucket.open = 0

    def _arrive(self) -> None:
        due = {
            at: bucket.under_way.popleft()
            for at, bucket in enumerate(self._buckets)
            if bucket.under_way and bucket.under_way[0].due < self._made
        }
        if not due:
            return
        lacks = range(any(bucket.open or bucket.under_way for bucket in self._buckets))
        for number, anchor in enumerate(self._anchors):
            anchor.arrive([self._arrival(number, at, turn) for at, turn in due.items()], lacks=lacks)
        for other in self.copies[1:]:
            other.take_buffers(self.copies[0])

    def _arrival(self, number: int, at: int, turn: Turn) -> Arrival:
        bucket, own = self._buckets[at], turn.own[number]
        # As a session's programs have it: over ranks and iterations.
        count = len(turn.own) * turn.iterations
        mean = [
            sum(each[1:], each[0]) / count for each in zip(*(each.views for each in turn.own), strict=True)
        ]
        left = [each.iterations for each in bucket.under_way] + ([bucket.open] if bucket.open else [])
        loaded = cast(LoadedBucket, own)
        return Arrival(
            cast(LoadedBucket, Progress(own.names, mean)),
            loaded,
            range(turn.iterations),
            (),
            1.0,
            tuple(Pending(loaded, range(each), ()) for each in left),
        )

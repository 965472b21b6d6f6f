"""Row `machines` of `python -m benches elastic`: processor time of the machine that decides who goes on, in a job of 1,024 members.

The machines are those of real jobs, the coordinator's and one for each member, without processes, connections and a disk: what
one says to another is delivered in turn. Only calls to the coordinator's machine are timed, a thousand at once: a look at the clock
of a thread takes as long as such a call.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence

from benches.row import Row
from hocket import _native
from hocket.errors import PeerError

WORLD, OF_A_HOST = 1024, 8
TURNS = 20
DECIDES_MS = 10.0
Event = tuple[Callable[..., Sequence[_native.MemberAction]], *tuple[object, ...]]
"""Call of the coordinator's machine, with its arguments."""
LEAST_S = 1e-5
"""Time that passes between two events, on the clock of the machines."""


class Simulated:
    """A job whose members all train. Members of lower numbers hear of things first.

    Attributes:
        spent_s: processor time of the coordinator's machine since it was last set to 0.
        decided: decisions since the start.
    """

    def __init__(self, world: int) -> None:
        self._now_s, self.spent_s, self.decided = 0.0, 0.0, 0
        self.step, self.vote = 0, 0
        self._coordinator = _native.Coordinator(
            founders=world,
            members_min=1,
            members_max=world,
            heartbeat_s=5.0,
            join_patience_s=60.0,
            rejoin_patience_s=0.0,
            now_s=0.0,
            history=b"",
        )
        self.members = {
            member: _native.Participant(
                member=member,
                host=member // OF_A_HOST,
                founds=True,
                coordinator_patience_s=60.0,
                now_s=0.0,
            )
            for member in range(world)
        }
        self._notes: list[tuple[int, bytes]] = []
        self.everywhere(lambda each: each.linked(self._now_s))
        self.deliver()

    def everywhere(self, event: Callable[[_native.Participant], Sequence[_native.MemberAction]]) -> None:
        """Let something happen to each member."""
        for member, machine in list(self.members.items()):
            self._do(member, event(machine))

    def deliver(self) -> None:
        """Let the coordinator hear all that members have said, and these its orders, until nobody has anything to say."""
        while self._notes:
            notes, self._notes = self._notes, []
            self.happens([(_native.Coordinator.note, *each) for each in notes])

    def happens(self, events: Sequence[Event]) -> None:
        """Let the coordinator hear of events, one after the other, then members of its orders."""
        orders: list[_native.MemberAction] = []
        began_s = time.thread_time()
        for event, *details in events:
            self._now_s += LEAST_S
            actions = event(self._coordinator, *details, self._now_s)
            orders += actions
            if actions and actions[-1].kind == "write":
                self.decided += 1
                orders += self._coordinator.written(self._now_s)
        self.spent_s += time.thread_time() - began_s
        for order in orders:
            if order.kind == "send" and order.member in self.members:
                self._do(order.member, self.members[order.member].order(order.bytes or b"", self._now_s))

    def _do(self, member: int, actions: Sequence[_native.MemberAction]) -> None:
        machine, waiting = self.members[member], deque(actions)
        while waiting:
            action = waiting.popleft()
            match action.kind:
                case "send" if action.bytes is not None:
                    self._notes.append((member, action.bytes))
                case "quiesce":
                    waiting.extend(machine.quiesced(self._now_s))
                case "prepare":
                    waiting.extend(machine.loaded(action.epoch or 0, self._now_s))

    def make_step(self) -> None:
        """Make a step of all members."""
        vote = min(each.vote for each in self.members.values())
        self.everywhere(lambda each: each.prepared(self.step, vote, self._now_s))
        self.everywhere(lambda each: each.done(self.step, self._now_s))
        self.step += 1
        self.deliver()

    def lose(self, lost: int) -> None:
        """End a member's process: its connections close, and all others notice that."""
        del self.members[lost]
        self.happens([(_native.Coordinator.unlinked, lost)])
        self.everywhere(lambda each: each.lost(lost, self._now_s))
        for near in range(lost - lost % OF_A_HOST, lost - lost % OF_A_HOST + OF_A_HOST):
            if near in self.members:
                self._do(near, self.members[near].gone(lost, self._now_s))
        self.deliver()
        self.everywhere(lambda each: each.waits(self._now_s))
        self.deliver()

    def leave(self, leaver: int) -> None:
        """Let a member leave in order."""
        self._do(leaver, self.members[leaver].leave_asked(self._now_s))
        self.deliver()
        self.make_step()
        del self.members[leaver]
        self.deliver()


def machines() -> list[Row]:
    """Rows of losses and leaves, from the first note of each until all members are in the epoch that follows."""
    job, draw = Simulated(WORLD), random.Random(0)  # noqa: S311  # no secret
    lost_ms: list[float] = []
    left_ms: list[float] = []
    for spent_ms, happens in [(lost_ms, job.lose), (left_ms, job.leave)] * TURNS:
        job.make_step()
        job.spent_s, decided = 0.0, job.decided
        happens(draw.choice(sorted(job.members)))
        if job.decided != decided + 1 or len({each.in_force for each in job.members.values()}) != 1:
            raise PeerError("the members are not all in the next epoch")
        spent_ms.append(job.spent_s * 1e3)
    what = f"processor time of the coordinator's machine, {WORLD} members, {OF_A_HOST} of a host"
    return [
        Row.over(lost_ms, name="machines", what=f"{what}: one is lost", target=DECIDES_MS, unit="ms"),
        Row.over(left_ms, name="machines", what=f"{what}: one leaves", target=DECIDES_MS, unit="ms"),
    ]

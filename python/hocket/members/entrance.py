"""Entrance to an elastic job for processes that no launcher numbers: they come to its coordinator, which gives each its place.

The first become founders, ranks of the job at its start. As soon as there are enough, they meet as ranks of a launcher do. If one
of them ends before training has begun, the others end, too, and the job begins anew with the next that come. Once it trains,
whoever comes joins it, when it has room.

What a connection brings after that, and all connections of members, is for the `Coordination`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from hocket.job.store.frames import FrameError
from hocket.members.admission import Admission
from hocket.members.coordination import Coordination
from hocket.members.member_messages import Answer, Back, read_from_client
from hocket.members.place_messages import Arrives, Place, Refuses, Waits, arrives
from hocket.members.stores import Stores

log = logging.getLogger("hocket.coordinator")


class _Founder(NamedTuple):
    rank: int
    name: str


class Entrance:
    """A `Machine` for a store's server: a coordination, and the places in its job.

    Attributes:
        coordination: the job's; another one when the job begins anew.
        begun: True if founders have their places.
        present: processes that wait for theirs.
    """

    def __init__(
        self,
        coordination: Callable[[], Coordination],
        stores: Stores,
        settings: Mapping[str, str],
        *,
        founders: int,
        begun: bool = False,
        job: str = "",
    ) -> None:
        """Open. `coordination`: makes the coordinator of a job that has not begun, or, if it has `begun`, the one that goes on with
        it; `stores`: where its members meet; `settings`: variables of its ranks; `founders`: how many begin it; `job`: a name that
        other jobs with its secret do not have."""
        self._job = job
        self._make, self._stores, self._settings, self._count = coordination, stores, dict(settings), founders
        self.coordination = coordination()
        self.present: tuple[str, ...] = ()
        self.begun = begun
        self._guests: dict[int, Arrives] = {}
        """Processes without a place, by client, in the order in which they came."""
        self._told: dict[int, Waits] = {}
        self._founders: dict[int, _Founder] = {}
        """Founders of a job that does not train yet."""
        self._newcomers: set[int] = set()
        self._of: dict[int, Coordination] = {}
        """Coordination that the client's messages are for."""
        self._earlier: list[Coordination] = []
        """Coordinations of jobs that did not begin."""
        self._answers: list[tuple[int, bytes]] = []
        self._tcp_info: Callable[[int], bytes] | None = None

    def watch(self, tcp_info: Callable[[int], bytes]) -> None:
        """Look at connections of members that others cannot reach. `tcp_info`: what the system tells of a client's."""
        self._tcp_info = self.coordination.roll.tcp_info = tcp_info

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Handle a message. FrameError: it is not allowed now."""
        if client in self._guests:
            raise FrameError("a process speaks before it has its place")
        if client not in self._of:
            if (guest := arrives(payload)) is not None:
                self._take_in(client, guest)
                return
            if self._is_of_another_job(payload):
                why = "the coordinator that has come is another job's: this one has no coordinator any more"
                self._answers.append((client, msgspec.json.encode(Answer(done=False, text=why))))
                return
            self._of[client] = self.coordination
        self._of[client].receive(client, payload, now_ns)

    def answers(self) -> list[tuple[int, bytes]]:
        """Return the messages for clients since the last call."""
        answers, self._answers = self._answers, []
        for each in self._all():
            answers += each.answers()
        return answers

    def disconnect(self, client: int) -> None:
        """Handle the end of a connection."""
        self._newcomers.discard(client)
        self._told.pop(client, None)
        if self._guests.pop(client, None) is not None:
            self._give_places()
            return
        coordination = self._of.pop(client, None)
        if coordination is not None:
            coordination.disconnect(client)
            self._earlier = [each for each in self._earlier if each in self._of.values()]
        founder = self._founders.pop(client, None)
        if (
            founder is not None
            and not self.coordination.roster.founded
            and self.coordination.roster.ended is None
        ):
            self._begin_anew(founder)

    def expire(self, now_ns: int) -> None:
        """Do what is due at this time."""
        for each in self._all():
            each.expire(now_ns)
        self._give_places()

    def deadline_ns(self) -> int | None:
        """Time at which `expire` is due next, or None."""
        return self.coordination.deadline_ns()

    def is_over(self, world: int) -> bool:
        """Return whether no member is connected any more, and `world` members were."""
        return self.coordination.is_over(world)

    def _all(self) -> Iterator[Coordination]:
        """Yield the job's coordination, and earlier ones that have clients left."""
        yield self.coordination
        yield from self._earlier

    def _is_of_another_job(self, payload: bytes) -> bool:
        """Return whether a member comes back whose coordinator was another job's: a secret may serve for several jobs."""
        message = read_from_client(payload)
        if not isinstance(message, Back) or message.job is None:
            return False
        return message.job != self._job or not self.coordination.roster.founded

    def _take_in(self, client: int, guest: Arrives) -> None:
        if (why := Admission.refusal(guest)) is not None:
            self._say(client, Refuses(why=why))
            return
        self._guests[client] = guest
        self._give_places()

    def _give_places(self) -> None:
        """Give a place to whoever can have one now, and tell the others why they cannot."""
        job = self.coordination
        if job.roster.founded:
            self._founders.clear()
        if not self._guests:
            self.present = ()
            return
        if job.roster.over or job.roster.ended is not None:
            why = "the job has ended" if job.roster.ended is None else f"the job ends: {job.roster.ended.why}"
            for client in self._guests:
                self._say(client, Refuses(why=why))
            self._guests.clear()
        elif not self.begun and len(self._guests) >= self._count:
            self._found(list(self._guests)[: self._count])
        elif job.roster.founded:
            members = {client: job.roll.member_of(client) for client in self._newcomers}
            room = job.roster.room - sum(
                each is None or not job.roster.has(each) for each in members.values()
            )
            for client in list(self._guests)[: max(0, room)]:
                self._place(client, Place(job=self._job, settings=self._settings))
                self._newcomers.add(client)
        self.present = tuple(map(str, self._guests.values()))
        self._explain()

    def _found(self, clients: Sequence[int]) -> None:
        """Begin the job. Ranks of one host get numbers in a row."""
        hosts = list(dict.fromkeys(self._guests[each].host for each in clients))
        by_rank = sorted(clients, key=lambda each: hosts.index(self._guests[each].host))
        self.begun, store = True, self._stores.another()
        for rank, client in enumerate(by_rank):
            name = f"rank {rank} on {self._guests[client].host} (process {self._guests[client].process})"
            self._founders[client] = _Founder(rank, name)
            place = Place(job=self._job, settings=self._settings, rank=rank, world=len(by_rank), store=store)
            self._place(client, place)
        names = ", ".join(each.name for each in self._founders.values())
        log.warning("%d ranks have come, and begin: %s", len(by_rank), names)

    def _begin_anew(self, lost: _Founder) -> None:
        """Give up a beginning without that founder: all others end, since some may count on it already."""
        why = f"{lost.name} ended before training had begun"
        log.warning("%s: those that were to begin with it end, and %d others begin anew", why, self._count)
        self._stores.refuse(lost.rank, why)
        self.coordination.end(why)
        for client in self._founders:
            answer = Answer(done=False, text=f"the job ends: {why}")
            self._answers.append((client, msgspec.json.encode(answer)))
        self._founders.clear()
        self._earlier.append(self.coordination)
        self.coordination, self.begun = self._make(), False
        self.coordination.roll.tcp_info = self._tcp_info
        self._give_places()

    def _explain(self) -> None:
        """Tell those that wait why, whenever that changes."""
        job = self.coordination
        if not self.begun:
            why = f"{len(self._guests)} of {self._count} ranks have come: {', '.join(self.present)}"
            waits = Waits(why=why, what="the job begins with all of them", founds=True)
        elif not job.roster.founded:
            waits = Waits(why="others begin just now", what="the job must have begun", founds=True)
        else:
            why = "the job has as many ranks as it may"
            waits = Waits(why=why, what="none has left or was lost", founds=False)
        for client in self._guests:
            if self._told.get(client) != waits:
                self._told[client] = waits
                self._say(client, waits)

    def _place(self, client: int, place: Place) -> None:
        del self._guests[client]
        self._told.pop(client, None)
        self._of[client] = self.coordination
        self._say(client, place)

    def _say(self, client: int, message: Waits | Refuses | Place) -> None:
        self._answers.append((client, msgspec.json.encode(message)))

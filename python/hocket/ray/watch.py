"""Watch over workers from the start of their functions to the end; failures are told with rank, kind and reason.

A lost actor is the cause, and errors of others are its consequences, in whatever order they come: Ray may notice the end of a node
later than the node's peers do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from hocket.errors import PeerError
from hocket.ray.session import Reported
from hocket.ray.worker import Ended
from hocket.ray.workers import Member, said
from hocket.start.run import REPORT_S

NEXT_S = 2.0
"""Seconds for which a worker is asked to wait for an event."""
TICK_S = 0.5
LOST_S = 60.0
"""Seconds that Ray may take to tell the fate of an actor that others miss, or that does not answer. Ray's own checks of nodes
take half of it."""
AGAIN_S = 1.0
OF_RANKS = 3
"""Number of ranks whose errors are shown."""

Take = Callable[[int, Reported], None]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Failure of a rank; `lost`: its actor is lost. `trace`: traceback of its function's error."""

    member: Member
    what: str
    lost: bool = False
    consequence: bool = False
    accused: int | None = None
    trace: str = ""


class Watch:
    """Watch over one training, from the start to the end."""

    def __init__(self, members: Sequence[Member], take: Take) -> None:
        """Ask each worker for its events. `take`: called with each rank and its report."""
        self._members = tuple(members)
        self._take = take
        self._asked: dict[Any, Member] = {}
        self._silent_since_s: dict[int, float] = {}
        self._failures: list[Failure] = []
        self._ended: set[int] = set()
        self._seen = dict.fromkeys((member.rank for member in members), 0)
        for member in members:
            self._ask(member)

    def until_the_end(self) -> None:
        """Return when all functions have ended in order. PeerError: one has not; by then, none runs that could tell more."""
        first_s: float | None = None
        while len(self._ended) < len(self._members):
            ready, _ = ray.wait(list(self._asked), num_returns=1, timeout=TICK_S)
            for reference in ready:
                self._hear(self._asked.pop(reference), reference)
            if self._failures and first_s is None:
                first_s = time.monotonic()
            if first_s is not None and time.monotonic() > first_s + self._patience_s():
                break
        if self._failures:
            raise self._error()

    def _ask(self, member: Member) -> None:
        self._asked[member.actor.next.remote(self._seen[member.rank], NEXT_S)] = member

    def _hear(self, member: Member, reference: Any) -> None:
        try:
            events = ray.get(reference)
        except ActorUnavailableError as error:
            since_s = self._silent_since_s.setdefault(member.rank, time.monotonic())
            if time.monotonic() > since_s + LOST_S:
                self._lost(member, f"its actor has not answered for {LOST_S:g} s: {said(error)}")
            else:
                time.sleep(AGAIN_S)
                self._ask(member)
            return
        except RayActorError as error:
            self._lost(member, said(error))
            return
        except RayError as error:
            self._lost(member, f"what it reported cannot be fetched: {said(error)}")
            return
        self._silent_since_s.pop(member.rank, None)
        self._seen[member.rank] += len(events)
        for event in events:
            if isinstance(event, Reported):
                self._take(member.rank, event)
            else:
                self._end_of(member, event)
        if member.rank not in self._ended:
            self._ask(member)

    def _end_of(self, member: Member, ended: Ended) -> None:
        self._ended.add(member.rank)
        if ended.summary is not None:
            failure = Failure(
                member=member,
                what=f"its function raised {ended.summary}",
                consequence=ended.consequence,
                accused=ended.accused,
                trace=ended.trace,
            )
            self._failures.append(failure)

    def _lost(self, member: Member, what: str) -> None:
        self._ended.add(member.rank)
        self._failures.append(Failure(member=member, what=what, lost=True))

    def _patience_s(self) -> float:
        """Return how long others may report and end; longer if Ray must still tell the fate of a rank that they miss."""
        consequences = all(each.consequence for each in self._failures)
        missed = {each.accused for each in self._failures} - self._ended - {None}
        return LOST_S if consequences and missed else REPORT_S

    def _error(self) -> PeerError:
        causes = sorted(self._failures, key=lambda each: (not each.lost, each.consequence))
        first = causes[0]
        lost = [each for each in causes if each.lost]
        if first.lost:
            lines = [f"{each.member} was lost: {each.what}" for each in lost]
            others = [each for each in causes if not each.lost]
            lines += [f"then {each.member}: {each.what}" for each in others[:OF_RANKS]]
        else:
            alike = [each for each in causes if not each.consequence] or [first]
            lines = [f"{each.member}: {each.what}\n{each.trace.rstrip()}" for each in alike[:OF_RANKS]]
        still = sorted({member.rank for member in self._members} - self._ended)
        if still:
            lines.append(f"ranks that did not end within {self._patience_s():g} s were ended: {still}")
        return PeerError("\n".join(lines), rank=first.member.rank, host=first.member.host, why="failed")

"""Traffic of parameter servers with another number of workers, each a copy of a recorded one.

With `W` recorded workers, worker `r` is a copy of worker `r mod W`: it sends and receives the same messages, after the same gaps.
Servers stay as they are. A server does for each copy what it did for the recorded worker, after the same gap; a message that waited
for several workers waits once for all their copies, like a synchronous update.
"""

from __future__ import annotations

import msgspec

from hocket.errors import ArtefactError, UsageError
from hocket.tools.replay.traffic import MESSAGES_MAX, Message, Traffic

ALL = -1
"""Stand-in for a worker's number: a message that waits for several workers exists once."""


def with_workers(traffic: Traffic, workers: int) -> Traffic:
    """Return the traffic of `workers`; `recorded_s` stays that of the recorded ones.

    Raises UsageError if the record does not determine the messages of that many, ArtefactError for more than
    MESSAGES_MAX messages.
    """
    _check(traffic)
    copying = _Copying(traffic, workers)
    return msgspec.structs.replace(
        traffic,
        nodes=(*(f"worker {copy}" for copy in range(workers)), *traffic.nodes[traffic.workers :]),
        workers=workers,
        messages=tuple(copying.message(at, copy) for at, copy in copying.places),
    )


def _check(traffic: Traffic) -> None:
    if len(traffic.nodes) == traffic.workers:
        raise UsageError(
            "an all-reduce's messages depend on how many workers there are, and without its plan a trace says only those of "
            f"{traffic.workers}\nhint: the trace directory of a run of a plan can be simulated with others"
        )
    if traffic.workers == 1:
        raise UsageError(
            "a trace of one worker does not say whether servers wait for all workers or answer each\n"
            "hint: record two workers"
        )
    for each in traffic.messages:
        serve = [end >= traffic.workers for end in (each.source, each.destination)]
        if not each.is_moment and serve[0] == serve[1]:
            raise UsageError(
                f"{traffic.nodes[each.source]} sends to {traffic.nodes[each.destination]}: with another number of workers, only "
                "messages between workers and servers are known"
            )


class _Copying:
    """Copies of messages: numbers by position in the record and copy of a worker. Raises ArtefactError for too many."""

    def __init__(self, traffic: Traffic, workers: int) -> None:
        self._traffic, self._workers = traffic, workers
        copies = [self._copies(owners) for owners in _owners(traffic)]
        count = sum(map(len, copies))
        if count > MESSAGES_MAX:
            raise ArtefactError(
                f"{workers} workers have {count:,} messages, a replay at most {MESSAGES_MAX:,}\n"
                "hint: record fewer iterations, or ask for fewer workers"
            )
        whole = ((at, copy) for at, own in enumerate(copies) for copy in own)
        self._copies_of = copies
        self.places = {place: number for number, place in enumerate(whole)}

    def message(self, at: int, copy: int) -> Message:
        """Return one copy of a recorded message. UsageError: its dependencies are unknown, or of workers that are left out."""
        recorded = self._traffic.messages[at]
        after: list[int] = []
        for before in recorded.after:
            if copy == ALL:
                after += [self.places[before, each] for each in self._copies_of[before]]
                continue
            found = self.places.get((before, copy), self.places.get((before, ALL)))
            if found is None:
                raise UsageError(
                    f"{self._name(recorded.source)} has {self._name(copy % self._traffic.workers)} wait for others alone: "
                    f"for which of {self._workers} workers is not known"
                )
            after.append(found)
        shift = self._workers - self._traffic.workers
        source, destination = (
            copy if end < self._traffic.workers else end + shift
            for end in (recorded.source, recorded.destination)
        )
        return msgspec.structs.replace(recorded, source=source, destination=destination, after=tuple(after))

    def _copies(self, owners: frozenset[int]) -> range:
        first = min(owners, default=0)
        if len(owners) == 1:
            return range(first, self._workers, self._traffic.workers)
        return range(ALL, ALL + 1 if first < self._workers else ALL)

    def _name(self, node: int) -> str:
        return self._traffic.nodes[node]


def _owners(traffic: Traffic) -> list[frozenset[int]]:
    """Return, by message, its worker; for a server's moment, the workers that it waits for."""
    owners = [
        frozenset(end for end in (each.source, each.destination) if end < traffic.workers)
        for each in traffic.messages
    ]
    for at, each in enumerate(traffic.messages):
        if not owners[at]:
            owners[at] = frozenset[int]().union(*(owners[before] for before in each.after))
    return owners

"""Reader of Hocket's own records as traffic, for runs whose programs are not in the trace (a policy's).

Records hold times, not dependencies. A message waits for the message of the same launch that arrived at its source last before it
was ready, or, if there is none, for the launch. A launch waits for the previous one in its iteration, the first one for all
messages that had arrived. Programs whose ranks share memory recorded no messages, and are not replayed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from hocket.artefacts.trace import Kind, Recording, Trace
from hocket.errors import ArtefactError
from hocket.tools.formats.launches import Iteration, iterations, messages_of
from hocket.tools.replay.traffic import Message, Traffic, traffic

if TYPE_CHECKING:
    from hocket.artefacts.trace import Records

NS = 1e-9

MessageId = tuple[int, int, int, int, int]
"""Source, destination, program, instance, turn: messages of a pair in one launch meet in the order of their ops."""


def of_records(trace: Trace | Recording) -> Traffic:
    """Return the traffic of all ranks.

    Raises ArtefactError: no messages, or those of two ranks do not match.
    """
    everyone = [trace.records(rank) for rank in range(trace.run.world)]
    sent, received = (_by_id(everyone, kind) for kind in (Kind.SEND, Kind.RECV))
    unmatched = sorted(set(sent) ^ set(received))
    if unmatched:
        source, to, program, instance, _ = unmatched[0]
        raise ArtefactError(
            f"{len(unmatched)} messages have one end only, such as one from rank {source} to rank {to} of program {program}, "
            f"launch {instance}\n{_hint(trace)}"
        )
    order = sorted(sent, key=lambda key: (sent[key][0], key))
    number = {key: at for at, key in enumerate(order)}
    arrivals: dict[int, list[tuple[int, MessageId]]] = defaultdict(list)
    for key, (_, end_ns, _) in received.items():
        arrivals[key[1]].append((end_ns, key))
    made: list[Message | None] = [None] * len(order)
    moments: list[Message] = []
    for rank, records in enumerate(everyone):
        own = sorted(arrivals[rank])
        launched = _launches(rank, iterations(records), own, number, len(order) + len(moments))
        moments += [moment for moment, _, _ in launched.values()]
        places = {launch: (place, ready_ns) for launch, (_, place, ready_ns) in launched.items()}
        landed: dict[tuple[int, int], list[tuple[int, MessageId]]] = defaultdict(list)
        for end_ns, key in own:
            landed[key[2], key[3]].append((end_ns, key))
        for key in order:
            if key[0] != rank:
                continue
            launch = key[2], key[3]
            if launch not in places:
                raise ArtefactError(
                    f"rank {rank} has messages of program {key[2]}, launch {key[3]}, and no record of the launch"
                )
            ready_ns = sent[key][0]
            before = [each for each in landed[launch] if each[0] <= ready_ns]
            place, since_ns = (number[before[-1][1]], before[-1][0]) if before else places[launch]
            gap_s = max(0, ready_ns - since_ns) * NS
            # A message that waits for another is made of it; the launch's first ones are ready at once.
            kind = (key[2], rank, int(bool(before)))
            made[number[key]] = Message(rank, key[1], int(sent[key][2]), (place,), gap_s, key[3], kind)
    whole = [message for message in made if message is not None] + moments
    times_s = [received[key][1] * NS for key in order] + [0.0] * len(moments)
    return traffic(trace.run.hosts, trace.run.world, whole, times_s)


def _hint(trace: Trace | Recording) -> str:
    if isinstance(trace, Trace):
        for rank in range(trace.run.world):
            if trace.extent(rank).end == "full":
                return f"hint: the file of rank {rank} was full too soon: give more --trace-bytes, or record fewer steps"
    return "hint: records were dropped, or a rank's file is cut off"


def _by_id(everyone: list[Records], kind: Kind) -> dict[MessageId, tuple[int, ...]]:
    """Return ready time and, for receives, the end; for sends the end and the bytes; nanoseconds."""
    found: dict[MessageId, tuple[int, ...]] = {}
    for rank, records in enumerate(everyone):
        for (program, instance), messages in messages_of(records).items():
            own = messages[messages["kind"] == kind]
            own = own[np.argsort(own["op"], kind="stable")]
            turns: dict[int, int] = defaultdict(int)
            columns = (own[name].tolist() for name in ("peer", "ready_ns", "end_ns", "bytes"))
            for peer, *times in zip(*columns, strict=True):
                pair = (rank, peer) if kind == Kind.SEND else (peer, rank)
                found[*pair, program, instance, turns[peer]] = tuple(times)
                turns[peer] += 1
    return found


def _launches(
    rank: int,
    rank_iterations: list[Iteration],
    own: list[tuple[int, MessageId]],
    number: dict[MessageId, int],
    first: int,
) -> dict[tuple[int, int], tuple[Message, int, int]]:
    """Return, by program and instance, the moment, its number and its time. `own`: the rank's arrivals by time."""
    found: dict[tuple[int, int], tuple[Message, int, int]] = {}
    ends_ns = [end_ns for end_ns, _ in own]
    begun_ns = rank_iterations[0].start_ns if rank_iterations else 0
    looked = 0
    for iteration in rank_iterations:
        before: tuple[int, int] | None = None
        for launch in iteration.launches:
            if before is None:
                until = int(np.searchsorted(ends_ns, launch.ready_ns, side="right"))
                after = tuple(number[key] for _, key in own[looked:until])
                since_ns = ends_ns[until - 1] if until > looked else begun_ns
                looked = until
            else:
                after, since_ns = (before[0],), before[1]
            place = first + len(found)
            gap_s = max(0, launch.ready_ns - since_ns) * NS
            found[launch.program, launch.instance] = (
                Message(rank, rank, 0, after, gap_s, -1, (launch.program, rank) if after else ()),
                place,
                launch.ready_ns,
            )
            before = place, launch.ready_ns
    return found

"""Traces as GOAL, the input of LogGOPSim's `txt2bin`: per rank, sends, receives, computation and dependencies.

`calc` is nanoseconds. Computation is the time between launches of programs. A message requires the launch of its program, and the
message of that program that ended last before it started: records hold times, not dependencies, so these are inferred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hocket.artefacts.trace import Kind, Recording, Trace
from hocket.errors import ArtefactError
from hocket.tools.formats.launches import iterations, messages_of

if TYPE_CHECKING:
    from hocket.artefacts.trace import Records

Message = tuple[int, int, int, int]
"""Source, destination, program, instance: messages that are matched in their order."""


def write(trace: Trace | Recording, path: Path) -> int:
    """Write the trace; return the number of messages. Raises ArtefactError when there are none, or two ranks' do not match."""
    everyone = [trace.records(rank) for rank in range(trace.run.world)]
    tags = _tags(everyone)
    if not tags:
        raise ArtefactError("the trace has no messages: GOAL has sends and receives, no collectives")
    try:
        with path.open("w") as file:
            file.write(f"num_ranks {trace.run.world}\n")
            for rank, records in enumerate(everyone):
                file.write(f"\nrank {rank} {{\n")
                file.writelines(f"{line}\n" for line in _rank(rank, records, tags))
                file.write("}\n")
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None
    return sum(int(np.isin(records["kind"], (Kind.SEND, Kind.RECV)).sum()) for records in everyone)


def _tags(everyone: list[Records]) -> dict[Message, int]:
    """Return the first tag of the messages of each pair in each launch; both ends have as many."""
    counts: dict[Message, list[int]] = defaultdict(lambda: [0, 0])
    for rank, records in enumerate(everyone):
        for (program, instance), messages in messages_of(records).items():
            for peer, kind in zip(messages["peer"].tolist(), messages["kind"].tolist(), strict=True):
                if kind == Kind.SEND:
                    counts[rank, peer, program, instance][0] += 1
                else:
                    counts[peer, rank, program, instance][1] += 1
    tags, tag = {}, 0
    for (source, to, program, instance), (sent, received) in sorted(counts.items()):
        if sent != received:
            raise ArtefactError(
                f"rank {source} sent {sent} messages of program {program}, launch {instance}, and rank {to} received {received}: "
                "LogGOPSim would never end\nhint: records were dropped, or a rank's file is cut off"
            )
        tags[source, to, program, instance] = tag
        tag += sent
    return tags


def _rank(rank: int, records: Records, tags: dict[Message, int]) -> Iterator[str]:
    messages = messages_of(records)
    ended: list[int] = []
    label = 0
    for iteration in iterations(records):
        now_ns, computed = iteration.start_ns, ended
        ended = []
        for launch in iteration.launches:
            label += 1
            yield f"l{label}: calc {max(0, launch.ready_ns - now_ns)}"
            yield from (f"l{label} requires l{before}" for before in computed)
            now_ns, computed = max(now_ns, launch.ready_ns), [label]
            own = messages.pop((launch.program, launch.instance), None)
            if own is None:
                continue
            lines, last = _messages(rank, own, label, tags)
            yield from lines
            label += len(own)
            ended.extend(last)
        label += 1
        last_ns = max(launch.end_ns for launch in iteration.launches)
        yield f"l{label}: calc {max(0, iteration.end_ns - max(last_ns, now_ns))}"
        yield from (f"l{label} requires l{before}" for before in [*computed, *ended])
        ended = [label]
    if messages:
        program, instance = next(iter(messages))
        raise ArtefactError(
            f"rank {rank} has messages of program {program}, launch {instance}, and no record of the launch"
        )


def _messages(rank: int, own: Records, launch: int, tags: dict[Message, int]) -> tuple[list[str], list[int]]:
    """Return the lines of one launch's messages, and the labels without successors; labels start after that of the launch."""
    order = np.argsort(own["end_ns"], kind="stable")
    ends = own["end_ns"][order]
    before = np.searchsorted(ends, own["start_ns"], side="right") - 1
    turns: dict[Message, int] = defaultdict(int)
    lines, followed = [], set()
    names = ("kind", "peer", "bytes", "program", "instance")
    for at, (kind, peer, size, program, instance) in enumerate(
        zip(*(own[n].tolist() for n in names), strict=True)
    ):
        label = launch + 1 + at
        pair = (rank, peer, program, instance) if kind == Kind.SEND else (peer, rank, program, instance)
        what = f"send {size}b to {peer}" if kind == Kind.SEND else f"recv {size}b from {peer}"
        lines.append(f"l{label}: {what} tag {tags[pair] + turns[pair]}")
        turns[pair] += 1
        # A message of no duration ends when it starts: it does not precede itself.
        previous = int(order[before[at]]) if before[at] >= 0 else at
        required = launch if previous >= at else launch + 1 + previous
        followed.add(required)
        lines.append(f"l{label} requires l{required}")
    return lines, [launch + 1 + at for at in range(len(own)) if launch + 1 + at not in followed]

"""Traces as Chrome's JSON, for https://ui.perfetto.dev and chrome://tracing.

A process is a rank. Slices on a track never overlap: concurrent records of a lane are spread over as many tracks as needed. Slices
are complete events (`X`) of the "Trace Event Format".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, Recording, Trace, kind_name
from hocket.errors import ArtefactError

if TYPE_CHECKING:
    from hocket.artefacts.trace import Records

Row = dict[str, int]
"""Record by field."""

LANES = (
    ("step", (Kind.STEP,)),
    ("parts of the step", (Kind.FORWARD, Kind.BACKWARD, Kind.WAIT, Kind.OPTIMIZER, Kind.UPDATE)),
    ("programs", (Kind.INSTANCE,)),
    ("compute", (Kind.COPY, Kind.CAST, Kind.REDUCE, Kind.APPLY, Kind.RECORD)),
    ("libraries", (Kind.LIBRARY,)),
)
"""Lanes in the order of display; messages follow, a lane per peer and direction."""

MESSAGES = (("send to", Kind.SEND), ("receive from", Kind.RECV))

PLACED = [*(kind for _, kinds in LANES for kind in kinds), *(kind for _, kind in MESSAGES)]
"""Kinds that have a lane; all others share one."""


def write(trace: Trace | Recording, path: Path) -> int:
    """Write the trace to a file; return the number of slices.

    Raises ArtefactError when the trace cannot be read or the file not be written.
    """
    slices = 0
    try:
        with path.open("wb") as file:
            file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
            for index, event in enumerate(events(trace)):
                file.write(b",\n" if index else b"\n")
                file.write(msgspec.json.encode(event))
                slices += event["ph"] == "X"
            file.write(b"\n]}\n")
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None
    return slices


def events(trace: Trace | Recording) -> Iterator[dict[str, Any]]:
    """Yield names of processes and tracks, and a slice per record; microseconds since the first start."""
    everyone = [trace.records(rank) for rank in range(trace.run.world)]
    origin_ns = min((int(records["start_ns"].min()) for records in everyone if len(records)), default=0)
    labels = {program.program: program.label for program in trace.run.programs}
    for rank, records in enumerate(everyone):
        yield from _named("process", rank, 0, f"rank {rank} on {trace.run.hosts[rank]}", rank)
        tracks = 0
        for lane, members in _lanes(records):
            own_tracks = 0
            for row, own in _spread(members):
                if own == own_tracks:
                    own_tracks += 1
                    name = lane if own == 0 else f"{lane}, {own + 1}"
                    yield from _named("thread", rank, tracks + own, name, tracks + own)
                yield {"pid": rank, "tid": tracks + own, **_slice(row, origin_ns, labels)}
            tracks += own_tracks


def _lanes(records: Records) -> Iterator[tuple[str, Records]]:
    for name, kinds in LANES:
        yield name, records[np.isin(records["kind"], kinds)]
    for name, kind in MESSAGES:
        messages = records[records["kind"] == kind]
        messages = messages[np.argsort(messages["peer"], kind="stable")]
        for members in np.split(messages, np.flatnonzero(np.diff(messages["peer"])) + 1):
            if len(members):
                yield f"{name} rank {members['peer'][0]}", members
    yield "other", records[~np.isin(records["kind"], PLACED)]


def _spread(records: Records) -> Iterator[tuple[Row, int]]:
    """Yield each record by start, with the number of a free track; uses as few tracks as possible."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []  # (end, track)
    names = [name for name, _ in FIELDS]
    for values in records[np.lexsort((records["end_ns"], records["start_ns"]))].tolist():
        row = dict(zip(names, values, strict=True))
        while busy and busy[0][0] <= row["start_ns"]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        track = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (max(row["start_ns"], row["end_ns"]), track))
        yield row, track


def _slice(row: Row, origin_ns: int, labels: dict[int, str]) -> dict[str, Any]:
    args = {"iteration": row["instance"]}
    name = kind_name(row["kind"])
    if row["kind"] < Kind.STEP:
        label = labels.get(row["program"]) or f"program {row['program']}"
        name = label if row["kind"] == Kind.INSTANCE else f"{name} {label}"
        args = {field: row[field] for field in ("program", "instance", "op", "bytes", "thread")}
        args["waited_ns"] = row["start_ns"] - row["ready_ns"]
        if row["peer"] != NO_PEER:
            args["peer"] = row["peer"]
    start_us = (row["start_ns"] - origin_ns) / 1000
    duration_us = max(0, row["end_ns"] - row["start_ns"]) / 1000
    return {"ph": "X", "name": name, "ts": start_us, "dur": duration_us, "args": args}


def _named(what: str, rank: int, track: int, name: str, position: int) -> Iterator[dict[str, Any]]:
    place = {"ph": "M", "pid": rank, "tid": track}
    yield {**place, "name": f"{what}_name", "args": {"name": name}}
    yield {**place, "name": f"{what}_sort_index", "args": {"sort_index": position}}

"""DLC's messages of parameter servers as Hocket's records, and rows as batches.

`dlc_server` writes a run with parameter servers in DLC's fields, `dlc_all_reduce` one of all-reduces, and reads it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from hocket._native import DLC_OPERATIONS
from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, RunInfo
from hocket.errors import ArtefactError
from hocket.tools.formats import dlc
from hocket.tools.formats.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from hocket.artefacts.trace import Records


def to_native(header: dlc.Header, batches: Iterable[pa.RecordBatch]) -> Recording:
    """Return a record per message, of the node that recorded it, and a span per key and iteration; times from the wall clock.

    Raises ArtefactError when the header lacks the number of nodes.
    """
    if header.workers is None or header.servers is None:
        raise ArtefactError(
            "the trace's header has no `num_workers` or `num_servers`: nobody knows how many ranks there are"
        )
    world = header.workers + header.servers
    parts: list[list[Records]] = [[] for _ in range(world)]
    sizes: dict[int, int] = {}
    for batch in batches:
        code = dlc.codes(batch)
        keep = code != dlc.SETUP
        received = code & dlc.RECV != 0
        columns = {
            name: batch.column(name).fill_null(0).to_numpy() for name in ("src", "dst", "length", "key")
        }
        records = np.zeros(len(batch), list(FIELDS))
        seconds = batch.column("time_sec").fill_null(0).to_numpy()
        micros = batch.column("time_usec").fill_null(0).to_numpy()
        time_ns = (seconds * 1_000_000 + micros) * 1000 if len(batch) else seconds
        for name in ("ready_ns", "start_ns", "end_ns"):
            records[name] = time_ns
        records["kind"] = np.where(received, Kind.RECV, Kind.SEND)
        records["bytes"], records["program"] = columns["length"], columns["key"]
        records["instance"] = dlc.iterations(batch) + 1
        # A server's numbers begin with -2.
        records["op"] = batch.column("operation_num").fill_null(0).to_numpy() + np.where(
            code & dlc.SERVER, 2, 0
        )
        records["peer"] = np.where(received, columns["src"], columns["dst"])
        nodes = np.where(received, columns["dst"], columns["src"])
        for rank in np.unique(nodes[keep]).tolist():
            if rank < world:
                parts[rank].append(records[keep & (nodes == rank)])
        for key in np.unique(columns["key"][keep]).tolist():
            sizes[key] = max(sizes.get(key, 0), int(columns["length"][keep & (columns["key"] == key)].max()))
    programs = [
        LoadedProgram(program=key, label=f"key {key}", bucket=key, bytes=size)
        for key, size in sorted(sizes.items())
    ]
    names = [f"worker {rank}" for rank in range(header.workers)] + [
        f"server {rank}" for rank in range(header.servers)
    ]
    run = RunInfo(world=world, hosts=tuple(names), script="DLC trace", programs=tuple(programs))
    return Recording(run, tuple(_with_instances(each) for each in parts))


def _with_instances(parts: list[Records]) -> Records:
    """Return the messages, and a span from the first to the last of each key and iteration."""
    records = np.concatenate([np.empty(0, list(FIELDS)), *parts])
    if not len(records):
        return records
    order = np.lexsort((records["start_ns"], records["program"], records["instance"]))
    ordered = records[order]
    changes = (np.diff(ordered["program"]) != 0) | (np.diff(ordered["instance"]) != 0)
    firsts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    lasts = np.concatenate([firsts[1:], [len(ordered)]]) - 1
    spans = ordered[firsts]
    spans["kind"], spans["peer"], spans["op"] = Kind.INSTANCE, NO_PEER, 0
    spans["end_ns"] = ordered["end_ns"][lasts]
    spans["bytes"] = np.add.reduceat(ordered["bytes"], firsts)
    whole = np.concatenate([records, spans])
    return whole[np.argsort(whole["end_ns"], kind="stable")]


def origin_us(run: RunInfo) -> int:
    """Return microseconds since 1970 at the run's start; 0 if unknown."""
    try:
        return round(datetime.fromisoformat(run.started_at).timestamp() * 1e6)
    except ValueError:
        return 0


def batches_of(rows: list[dict[str, Any]], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return rows as a batch, of the columns of `dlc.table_schema`."""
    pa = arrow()
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if field.name == "operation":
            indices = pa.array([DLC_OPERATIONS.index(word) for word in values], pa.int8())
            columns.append(pa.DictionaryArray.from_arrays(indices, pa.array(DLC_OPERATIONS)))
        else:
            columns.append(pa.array(values, field.type))
    return [pa.RecordBatch.from_arrays(columns, schema=schema)]

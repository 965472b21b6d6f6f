"""Conversion between DLC's fields and Hocket's records: an all-reduce run in terms of push and pull, and back.

In an all-reduce every rank is a worker and a server at once, so rank `r` of `W` is worker `r` and server `W + r`. All messages of a
rank to `q` in one iteration of a bucket are one push to server `q`, at the first one's start; all that it receives from `q` are one
pull, at the last one's end. Phases, volumes and pairs are thus those of the run; single messages, their order and all computation
are missing in a DLC file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from hocket._native import DLC_OPERATIONS
from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, RunInfo, Trace
from hocket.errors import ArtefactError
from hocket.tools.formats import dlc
from hocket.tools.formats.arrow import arrow
from hocket.tools.formats.launches import launch_times

if TYPE_CHECKING:
    import pyarrow as pa

    from hocket.artefacts.trace import Records

PUSH_ON_PULL, PULL_ON_PUSH = 4, 2
"""Values of `dep_type`."""


def to_dlc(trace: Trace | Recording) -> Iterator[tuple[int, dlc.Header, list[pa.RecordBatch]]]:
    """Yield each rank's file: its number, header and records. Raises ArtefactError when the trace cannot be read, or when servers
    held some of the buckets: then messages are of two kinds, and a file has fields for one."""
    if any(each.worker is not None for each in trace.run.programs):
        raise ArtefactError(
            "servers held some of the run's buckets, and others were reduced: DLC's files are of one or the other\n"
            "hint: record a run of --servers without a plan"
        )
    world, start_us = trace.run.world, origin_us(trace.run)
    everyone = [trace.records(rank) for rank in range(world)]
    first_ns = min((int(records["start_ns"].min()) for records in everyone if len(records)), default=0)
    for rank, records in enumerate(everyone):
        header = dlc.Header.of(world, world, trace.run.hosts[rank], wall_clock=start_us > 0)
        rows = _rows(rank, world, records, lambda ns: start_us + (ns - first_ns) // 1000)
        yield rank, header, batches_of(rows, dlc.table_schema(header))


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


def _rows(rank: int, world: int, records: Records, wall_us: Any) -> list[dict[str, Any]]:
    """Return the rank's file, in order of time; `launched`: by iteration and key, when the rank dispatched it."""
    launched = launch_times(records)
    groups = _groups(records)
    iterations = {iteration: number for number, iteration in enumerate(sorted({each[0] for each in groups}))}
    base = 4 if rank == 0 else 2
    rows = []
    for (iteration, key, kind, peer), (start_ns, end_ns, size) in groups.items():
        sent = kind == Kind.SEND
        place = iterations[iteration]
        rows.append(
            {
                "src": rank if sent else world + peer,
                "dst": world + peer if sent else rank,
                "length": size,
                "operation": "OP:= Push_Send_Worker" if sent else "OP:= Pull_Recv_Worker",
                "key": key,
                "operation_num": base + 4 * place + (0 if sent else 3),
                "peer": peer,
                "time_us": wall_us(start_ns if sent else end_ns),
                "iteration": place,
                "dispatched_ns": launched[key, iteration],
            }
        )
    rows.sort(key=lambda row: (row["time_us"], row["operation_num"]))
    return _with_dependencies(rows)


def _groups(records: Records) -> dict[tuple[int, int, int, int], tuple[int, int, int]]:
    """Return, by iteration, program, kind and peer of messages: first start, last end, bytes."""
    messages = records[np.isin(records["kind"], (Kind.SEND, Kind.RECV))]
    if not len(messages):
        return {}
    names = ("instance", "program", "kind", "peer")
    ordered = messages[np.lexsort([messages[name] for name in reversed(names)])]
    change = np.any([np.diff(ordered[name].astype(np.int64)) != 0 for name in names], axis=0)
    firsts = np.concatenate([[0], np.flatnonzero(change) + 1])
    starts = np.minimum.reduceat(ordered["start_ns"], firsts).tolist()
    ends = np.maximum.reduceat(ordered["end_ns"], firsts).tolist()
    sizes = np.add.reduceat(ordered["bytes"], firsts).tolist()
    keys = zip(*(ordered[name][firsts].tolist() for name in names), strict=True)
    return dict(zip(keys, zip(starts, ends, sizes, strict=True), strict=True))


def _with_dependencies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add dependencies: a push waits for all pulls of the previous iteration, a pull for its key's first push."""
    pulls: dict[int, tuple[int, set[str]]] = {}
    pushes: dict[tuple[int, int], tuple[int, str]] = {}
    for row in rows:
        if row["operation_num"] % 2:
            last_us, names = pulls.get(row["iteration"], (0, set()))
            names.add(f"{row['operation_num']}-s{row['peer']}.")
            pulls[row["iteration"]] = max(last_us, row["time_us"]), names
        else:
            op_id = f"{row['key']}-{row['operation_num']}-s{row['peer']}"
            pushes.setdefault((row["iteration"], row["key"]), (row["time_us"], op_id))
    moments = {(row["dispatched_ns"], row["iteration"], row["key"]) for row in rows}
    turns = {(iteration, key): turn for turn, (_, iteration, key) in enumerate(sorted(moments))}
    for number, row in enumerate(rows):
        pull = row["operation_num"] % 2
        turn = turns[row["iteration"], row["key"]]
        del row["dispatched_ns"]
        waits: tuple[int, str, int, int] = (0, "-1", -1, -1)
        since_us = row["time_us"]
        if pull and (row["iteration"], row["key"]) in pushes:
            since_us, op_id = pushes[row["iteration"], row["key"]]
            waits = PULL_ON_PUSH, op_id, row["key"], row["operation_num"] - 3
        elif not pull and row["iteration"] - 1 in pulls:
            since_us, names = pulls[row["iteration"] - 1]
            waits = PUSH_ON_PULL, f"({''.join(sorted(names))})", -1, row["operation_num"] - 1
        row |= dict(zip(("dep_type", "id_dep", "dep_key", "dep_num"), waits, strict=True))
        seconds, micros = divmod(row.pop("time_us"), 1_000_000)
        row |= {"id": number, "num_pp": 2 * turn + 1 + pull, "time_sec": seconds, "time_usec": micros}
        row["d_time"] = seconds * 1_000_000 + micros - since_us
    return rows


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

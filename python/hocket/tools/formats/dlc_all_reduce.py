"""All-reduce run in DLC's fields, operation by operation, and back without loss but of what is below a microsecond.

Every rank of an all-reduce is a worker and a server at once: rank `r` of `W` is worker `r` and server `W + r`. Each op of a program
has two records in its rank's file, which share a `num_pp`: where it began and where it ended.

| op | begins | ends |
| --- | --- | --- |
| a message to `q` | `Push_Send_Worker` to server `q`, with its bytes | `Push_Recv_Worker` |
| a message from `q` | `Pull_Send_Worker` to server `q` | `Pull_Recv_Worker`, with its bytes |
| an op within the rank, a launch | `Push_Send_Worker` to the rank's own server | `Push_Recv_Worker` from it |

All others have length 0, because nothing moves.

`d_time` of a beginning is the time since the op was ready, which is when the last of what it waits for was done; that of an end is
the op's own time. What an op is called in its program does not fit the fields: a table in the header has it, by the number within
the launch that `num_pp` ends in.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from hocket import typed
from hocket._native import DLC_OPERATIONS
from hocket.artefacts.decoding import MALFORMED
from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, RunInfo, Trace
from hocket.errors import ArtefactError
from hocket.tools.formats import dlc
from hocket.tools.formats.arrow import arrow
from hocket.tools.formats.dlc_native import origin_us
from hocket.tools.formats.launches import launch_times
from hocket.tools.formats.launches import numbers as numbers_of

if TYPE_CHECKING:
    import pyarrow as pa

    from hocket.artefacts.trace import Records

INDEPENDENT, PUSH_ON_PUSH, PULL_ON_PUSH, PULL_ON_PULL, PUSH_ON_PULL = range(5)
"""Values of `dep_type`."""

PUSH, PUSHED, PULL, PULLED = range(4)
"""Place of a record among the four of a key, a peer and an iteration, and the operation of each."""

OPERATIONS = np.array(
    [
        DLC_OPERATIONS.index(f"OP:= {name}")
        for name in ("Push_Send_Worker", "Push_Recv_Worker", "Pull_Send_Worker", "Pull_Recv_Worker")
    ],
    np.int8,
)

SLOT = ("program", "op", "kind", "flags", "thread", "bytes")
"""Fields of a record that its number within the launch stands for; a message's bytes are its length instead."""

WORLD_MAX = 1 << 16
"""Limit of ranks; a header may speak of more, and a rank without a file takes memory, too."""

TABLE_BYTES_MAX = 1 << 26
"""Limit of a header's table: a million ops take some megabytes."""

EXPLANATION = """\
all-reduce: rank r is worker r and server num_workers + r, and its own server does what moves nothing
length: 0 where nothing moves, as at the end of a send; d_time: since the op was ready, or since it began
all_reduce:= {}
"""
MARK = b"\nall_reduce:= "

Ints = npt.NDArray[np.int64]


class Table(Struct, frozen=True, kw_only=True):
    """Columns and numbers that the fields have no place for.

    `slots`: columns of SLOT, a row per op of a program, in order of their numbers; `numbers`: how many a launch may have;
    `launches`: the instance of each, in their order; `start_ns`, `start_us`: one moment, on the job's clock and in the file.
    """

    rank: int
    slots: tuple[tuple[Annotated[int, Meta(ge=0, le=(1 << 63) - 1)], ...], ...]
    numbers: Annotated[int, Meta(ge=1, le=1 << 31)]
    launches: tuple[Annotated[int, Meta(ge=0, le=(1 << 32) - 1)], ...]
    start_ns: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
    start_us: Annotated[int, Meta(ge=0, le=1 << 52)]
    programs: tuple[LoadedProgram, ...]


def to_dlc(trace: Trace | Recording) -> Iterator[tuple[int, dlc.Header, list[pa.RecordBatch]]]:
    """Yield each rank's file: its number, header and records. Raises ArtefactError when the trace cannot be read, or when servers
    held some of the buckets: then messages are of two kinds, and a file has fields for one."""
    if any(each.worker is not None for each in trace.run.programs):
        raise ArtefactError(
            "servers held some of the run's buckets, and others were reduced: DLC's files are of one or the other\n"
            "hint: record a run of --servers without a plan"
        )
    world, start_us = trace.run.world, origin_us(trace.run)
    everyone = [_Ops.of(trace.records(rank)) for rank in range(world)]
    known = [ops for ops in everyone if len(ops.records)]
    first_ns = min(
        (int(ops.records[name].min()) for ops in known for name in ("ready_ns", "start_ns")), default=0
    )
    first = min((int(ops.iteration.min()) for ops in known), default=0)
    for rank, ops in enumerate(everyone):
        slots, numbers = _slots(ops.records)
        table = Table(
            rank=rank,
            slots=tuple(tuple(slots[name].tolist()) for name in SLOT),
            numbers=int(numbers.max(initial=0)) + 1,
            launches=tuple(instance for _, instance in ops.launched),
            start_ns=first_ns,
            start_us=start_us,
            programs=trace.run.programs,
        )
        header = dlc.Header.of(
            world,
            world,
            trace.run.hosts[rank],
            wall_clock=start_us > 0,
            more=EXPLANATION.format(_packed(table)),
        )
        yield rank, header, [_batch(world, ops.after(first), numbers, table, dlc.table_schema(header))]


def is_all_reduce(header: dlc.Header) -> bool:
    """Return whether a file is of an all-reduce, with every op recorded."""
    return MARK in header.text


def messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records of a batch that are messages between nodes: in an all-reduce, one for each end of a message."""
    header = dlc.header_of(batch.schema)
    if header is None or header.workers is None or not is_all_reduce(header):
        return batch
    codes = dlc.codes(batch)
    src, dst = (np.asarray(batch.column(name)) % header.workers for name in ("src", "dst"))
    moved = (codes == 0) | (codes == dlc.PULL | dlc.RECV)
    return batch.filter(arrow().array(moved & (src != dst)))


def to_native(files: Iterable[tuple[dlc.Header, Iterable[pa.RecordBatch]]]) -> Recording:
    """Return the records of the ranks whose files are given, in order of their ends; others have none.

    An op of which a file has one end only is left out. Raises ArtefactError: a file's table is damaged, it is of another number of
    ranks than those before it, or of a rank that has had one.
    """
    ranks: dict[int, Records] = {}
    hosts: dict[int, str] = {}
    programs: tuple[LoadedProgram, ...] = ()
    world = None
    for header, batches in files:
        table = _unpacked(header)
        if world not in (None, header.workers):
            raise ArtefactError(
                f"the file of rank {table.rank} is of {header.workers} ranks, the files before of {world}"
            )
        world = header.workers
        if world is None or not 0 <= table.rank < world <= WORLD_MAX or table.rank in ranks:
            raise ArtefactError(
                f"a file of rank {table.rank} in a trace of {world} ranks: it is there twice, or not of it"
            )
        ranks[table.rank] = _records(table, list(batches))
        hosts[table.rank] = header.host or f"rank {table.rank}"
        programs = programs or table.programs
    if world is None:
        raise ArtefactError("there is no file of a rank")
    run = RunInfo(
        world=world,
        hosts=tuple(hosts.get(rank, f"rank {rank}") for rank in range(world)),
        script="DLC trace",
        programs=programs,
    )
    none = np.zeros(0, list(FIELDS))
    return Recording(run, tuple(ranks.get(rank, none) for rank in range(world)))


@dataclass(frozen=True)
class _Ops:
    """Records of programs, in order of the fields that number them; the iteration of each, and launches in their order."""

    records: Records
    iteration: Ints
    launched: tuple[tuple[int, int], ...]

    @staticmethod
    def of(records: Records) -> _Ops:
        ops = records["kind"] <= Kind.INSTANCE
        chosen, iteration = records[ops], numbers_of(records)[ops]
        order = _order(chosen)
        ordered = chosen[order]
        launches = zip(ordered["program"].tolist(), ordered["instance"].tolist(), strict=True)
        moments = dict(zip(launches, ordered["ready_ns"].tolist(), strict=True)) | launch_times(ordered)
        launched = sorted(moments, key=lambda each: (moments[each], each))
        return _Ops(ordered, iteration[order], tuple(launched))

    def after(self, first: int) -> _Ops:
        """Return the same, with iterations counted from the job's first one."""
        return replace(self, iteration=self.iteration - first)


def _order(chosen: Records) -> Ints:
    order = np.lexsort((chosen["end_ns"], chosen["start_ns"], *_labels(chosen)[::-1], chosen["instance"]))
    return order.astype(np.int64)


def _labels(records: Records) -> Ints:
    """Return the columns of SLOT."""
    moved = np.isin(records["kind"], (Kind.SEND, Kind.RECV))
    return np.stack([np.where(moved & (name == "bytes"), 0, records[name]).astype(np.int64) for name in SLOT])


def _slots(records: Records) -> tuple[Records, Ints]:
    """Return what ops there are, in order of program and number, and each record's number within its launch."""
    if not len(records):
        return records, np.zeros(0, np.int64)
    labels = _labels(records)
    launch = np.stack([records["instance"].astype(np.int64), *labels])
    starts = np.concatenate([[0], np.flatnonzero(np.any(np.diff(launch) != 0, axis=0)) + 1])
    # The how many-th record of the same op of one launch.
    turn = np.arange(len(records)) - np.repeat(starts, np.diff(starts, append=len(records)))
    kinds, which = np.unique(np.stack([*labels, turn]), axis=1, return_inverse=True)
    firsts = np.searchsorted(kinds[0], kinds[0], side="left")
    number = np.arange(kinds.shape[1]) - firsts
    slots = np.zeros(kinds.shape[1], list(FIELDS))
    for at, name in enumerate(SLOT):
        slots[name] = kinds[at]
    return slots, number[which.reshape(-1)]


def _batch(world: int, ops: _Ops, numbers: Ints, table: Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return a rank's file: two rows for each record, by time; what begins when another ends comes after it."""
    pa, rank, records, iteration = arrow(), table.rank, ops.records, ops.iteration
    moments = {
        name: table.start_us + (records[name] - table.start_ns) // 1000
        for name in ("ready_ns", "start_ns", "end_ns")
    }
    ready, start, end = moments.values()
    pulls = records["kind"] == Kind.RECV
    moves = pulls | (records["kind"] == Kind.SEND)
    peer = np.where(moves, records["peer"], rank).astype(np.int64)
    number = _first(rank) + 4 * iteration
    launches = list(zip(records["program"].tolist(), records["instance"].tolist(), strict=True))
    turns = {launch: at for at, launch in enumerate(ops.launched)}
    turn = np.array([turns[launch] for launch in launches], np.int64)
    num_pp = 2 * (turn * table.numbers + numbers) + 1 + pulls
    begins = np.where(pulls, PULL, PUSH)
    size = np.where(moves, records["bytes"], 0).astype(np.int64)
    own, other = np.full(len(records), rank), world + peer
    waits = _dependencies(rank, records, ready=ready, end=end, iteration=iteration, launches=launches)
    names = [f"{key}-" for key in records["program"].tolist()]
    to = [f"-s{each}" for each in peer.tolist()]
    ended = [
        f"{key}{each}{where}" for key, each, where in zip(names, (number + begins).tolist(), to, strict=True)
    ]
    both = {
        "src": (own, other),
        "dst": (other, own),
        "length": (np.where(pulls, 0, size), np.where(pulls, size, 0)),
        "num_pp": (num_pp, num_pp),
        "operation": (OPERATIONS[begins], OPERATIONS[begins + 1]),
        "key": (records["program"], records["program"]),
        "operation_num": (number + begins, number + begins + 1),
        "peer": (peer, peer),
        "dep_type": (waits[0], np.where(pulls, PULL_ON_PULL, PUSH_ON_PUSH)),
        "d_time": (start - ready, end - start),
        "time": (start, end),
        "dep_key": (waits[2], records["program"]),
        "dep_num": (waits[3], number + begins),
    }
    columns = {name: np.concatenate(halves).astype(np.int64) for name, halves in both.items()}
    # An op of no length ends after it began, whatever else ends then.
    after = np.concatenate([np.ones(len(records)), np.where(end > start, 0, 2)])
    order = np.lexsort((columns["num_pp"], after, columns["time"]))
    text = [*waits[1], *ended]
    arrays = []
    for field in schema:
        if field.name == "id_dep":
            arrays.append(pa.array([text[at] for at in order.tolist()], field.type))
        elif field.name == "operation":
            indices = pa.array(columns["operation"][order].astype(np.int8))
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array(DLC_OPERATIONS)))
        elif field.name == "id":
            arrays.append(pa.array(np.arange(len(order)), field.type))
        elif field.name in ("time_sec", "time_usec"):
            parts = np.divmod(columns["time"][order], 1_000_000)
            arrays.append(pa.array(parts[field.name == "time_usec"], field.type))
        else:
            arrays.append(pa.array(columns[field.name][order], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _dependencies(
    rank: int,
    records: Records,
    *,
    ready: Ints,
    end: Ints,
    iteration: Ints,
    launches: Sequence[tuple[int, int]],
) -> tuple[Ints, list[str], Ints, Ints]:
    """Return `dep_type`, `id_dep`, `dep_key` and `dep_num` of each beginning.

    A send waits for the message of its launch that came last before it was ready, or, where none had, for all messages of the
    previous iteration; a receive waits for its launch's first send. Ops within the rank wait for nothing that a file names.
    """
    arrived: dict[tuple[int, int], list[tuple[int, int]]] = {}
    pulled: dict[int, set[int]] = {}
    sent: dict[tuple[int, int], tuple[int, int]] = {}
    kinds, peers = records["kind"].tolist(), records["peer"].tolist()
    ends, readies, places = end.tolist(), ready.tolist(), iteration.tolist()
    for at, launch in enumerate(launches):
        if kinds[at] == Kind.RECV:
            arrived.setdefault(launch, []).append((ends[at], peers[at]))
            pulled.setdefault(places[at], set()).add(peers[at])
        elif kinds[at] == Kind.SEND:
            sent[launch] = min(sent.get(launch, (readies[at], peers[at])), (readies[at], peers[at]))
    for each in arrived.values():
        each.sort()
    count = len(records)
    kind, key, num = np.zeros(count, np.int64), np.full(count, -1), np.full(count, -1)
    text = ["-1"] * count
    for at, launch in enumerate(launches):
        number = _first(rank) + 4 * places[at]
        if kinds[at] == Kind.RECV and launch in sent:
            kind[at], key[at], num[at] = PULL_ON_PUSH, launch[0], number + PUSH
            text[at] = f"{launch[0]}-{number + PUSH}-s{sent[launch][1]}"
        elif kinds[at] == Kind.SEND:
            own = arrived.get(launch, [])
            before = bisect_right(own, (readies[at], NO_PEER))
            if before:
                kind[at], key[at], num[at] = PUSH_ON_PULL, launch[0], number + PULLED
                text[at] = f"{launch[0]}-{number + PULLED}-s{own[before - 1][1]}"
            elif places[at] - 1 in pulled:
                kind[at], num[at] = PUSH_ON_PULL, number - 4 + PULLED
                everyone = "".join(
                    f"{number - 4 + PULLED}-s{peer}." for peer in sorted(pulled[places[at] - 1])
                )
                text[at] = f"({everyone})"
    return kind, text, key, num


def _first(rank: int) -> int:
    """Return a worker's first operation number of training, as `dlc.iterations` has it."""
    return 4 if rank == 0 else 2


def _records(table: Table, batches: Sequence[pa.RecordBatch]) -> Records:
    """Return the ops of which both records are there."""
    names = ("length", "num_pp", "key", "operation_num", "peer", "d_time", "time_sec", "time_usec")
    parts = [
        (dlc.codes(batch), *(np.asarray(batch.column(name).fill_null(0), np.int64) for name in names))
        for batch in batches
    ]
    if not parts:
        return np.zeros(0, list(FIELDS))
    code, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = dict(zip(names, columns, strict=True))
    at = rows["time_sec"] * 1_000_000 + rows["time_usec"]
    begun, ended = (np.flatnonzero(code & dlc.RECV == way) for way in (0, dlc.RECV))
    _, left, right = np.intersect1d(rows["num_pp"][begun], rows["num_pp"][ended], return_indices=True)
    begun, ended = begun[left], ended[right]
    pulls = code[begun] & dlc.PULL != 0
    turn, slot = np.divmod((rows["num_pp"][begun] - 1 - pulls) // 2, table.numbers)
    slots = np.array(table.slots, np.int64).reshape(len(SLOT), -1)
    place = np.searchsorted(slots[0], rows["key"][begun], side="left") + slot
    known = (place < slots.shape[1]) & (turn >= 0) & (turn < len(table.launches))
    place = np.where(known, place, 0)
    if not known.all() or not np.array_equal(slots[0][place], rows["key"][begun]):
        raise ArtefactError(f"the file of rank {table.rank} has an operation that its header does not name")
    found = np.zeros(len(begun), list(FIELDS))
    for name, column in zip(SLOT, slots, strict=True):
        found[name] = column[place]
    since = table.start_ns - 1000 * table.start_us
    found["start_ns"], found["end_ns"] = 1000 * at[begun] + since, 1000 * at[ended] + since
    found["ready_ns"] = found["start_ns"] - 1000 * rows["d_time"][begun]
    found["bytes"] += rows["length"][np.where(pulls, ended, begun)].astype(np.uint64)
    found["peer"] = np.where(rows["peer"][begun] == table.rank, NO_PEER, rows["peer"][begun])
    found["instance"] = np.array(table.launches, np.int64)[turn]
    ordered: Records = found[np.argsort(found["end_ns"], kind="stable")]
    return ordered


def _packed(table: Table) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(table))).decode()


def _unpacked(header: dlc.Header) -> Table:
    text = header.text.split(MARK, 1)[-1].split(b"\n", 1)[0]
    try:
        plain = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), TABLE_BYTES_MAX)
        table = typed.of_json(plain, Table)
    except (binascii.Error, zlib.error, *MALFORMED) as error:
        raise ArtefactError(f"the header's table of operations is damaged: {error}") from None
    lengths = {len(column) for column in table.slots}
    if len(table.slots) != len(SLOT) or len(lengths) != 1 or list(table.slots[0]) != sorted(table.slots[0]):
        raise ArtefactError("the header's table of operations is damaged: its columns do not fit one another")
    return table

"""SketchDLC's trace, one text file per node: a header, then a line per message.

The native parser (`crates/dlc`) reads records as Arrow batches and checks every rule of a line. This file handles the header,
truncated files, and writing. A trace is written back byte for byte. A record without a line end is incomplete: its last field may
be cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hocket._native import DLC_OPERATIONS, DLC_SETUP_FIRST, dlc_columns
from hocket.errors import ArtefactError
from hocket.tools.formats.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES = 8 << 20
"""Number of bytes read at a time: some 100,000 records."""

LINE_BYTES_MAX = BLOCK_BYTES
"""Limit of a line; longer ones are malformed. A server that waits for 10,000 workers names them in a hundredth of it."""

HEADER_BYTES_MAX = 1 << 20
"""Limit of header lines before the column names."""

PROBLEMS_MAX = 20
"""Limit of described malformed lines; all are counted."""

FIELDS = (
    "id", "src", "dst", "length", "num_pp", "operation", "op_id", "dep_type", "d_time", "time_sec", "time_usec", "id_dep",
)  # fmt: skip
"""Column names in the header's last line."""

COLUMN_NAMES = "\t".join(FIELDS).encode()

NUMBERS = (
    ("id", "<i8"), ("src", "<i4"), ("dst", "<i4"), ("length", "<i8"), ("num_pp", "<i8"), ("operation", "u1"),
    ("key", "<i4"), ("operation_num", "<i4"), ("peer", "<i4"), ("dep_type", "i1"), ("d_time", "<i8"),
    ("time_sec", "<i8"), ("time_usec", "<i4"), ("dep_key", "<i4"), ("dep_num", "<i4"),
)  # fmt: skip
"""Columns of a batch, without `id_dep`. `op_id` is split into `key`, `operation_num` and `peer`, whose role follows from the
operation; `dep_key` and `dep_num` are parsed from `id_dep`: -1 for none, `dep_key` -1 for several."""

NULL_IN_SETUP = frozenset(name for name, _ in NUMBERS[6:])

PULL, RECV, SERVER = 4, 2, 1
"""Bits of a record's kind: a pull, otherwise a push; received, otherwise sent; recorded by a server, otherwise by a
worker."""

SETUP = 255

ROLE = ("s", "w")
"""Role of the peer by the operation's lowest bit: a worker's records name servers."""


@dataclass(frozen=True)
class Header:
    """Text before the records, and the values parsed from it; None for missing ones."""

    text: bytes
    workers: int | None = None
    servers: int | None = None

    @property
    def host(self) -> str | None:
        """Host of the node that wrote the file; None if the header has none."""
        found = re.search(rb"^worker_hostname:= (.+)$", self.text, re.MULTILINE)
        return None if found is None else found[1].decode(errors="replace")

    @staticmethod
    def parse(text: bytes) -> Header:
        """Parse a header's text; an implausible count is unknown."""
        return Header(text, _count(text, b"num_workers"), _count(text, b"num_servers"))

    @staticmethod
    def of(workers: int, servers: int, host: str, *, wall_clock: bool, more: str = "") -> Header:
        """Return the header of a trace made here, in the paper's words; `wall_clock`: times are since 1970; `more`: lines."""
        worker_ids = "".join(f"{rank}," for rank in range(workers))
        server_ids = "".join(f"{workers + rank}," for rank in range(servers))
        names = "\t".join(FIELDS)
        text = (
            f"==\nnum_workers:= {workers}\nnum_servers:= {servers}\nworker_hostname:= {host}\nWorker_ID:= {worker_ids}\n"
            f"Server_ID:= {server_ids}\n{EXPLANATION}"
            f"{more}{'' if wall_clock else NO_WALL_CLOCK}==\n{names}\n"
        )
        return Header(text.encode(), workers, servers)


EXPLANATION = """\
==
num_pp:=
-15: Initialize Server
0: setup messages
odd (even): push_operation
even (odd): pull_operation
==
push operation:
push_send_worker -> push_recv_worker
push_recv_server -> push_send_server
==
Pull operation:
pull_send_worker -> pull_recv_worker
pull_recv_server -> pull_send_server
==
op_id: (key-operation_num-role)
key: the index of parameters
role: (worker or server)
operation_num: the num of push or pull, every four num means an iteration (push_send, push_recv, pull_send, pull_recv)
==
length: bytes of content; headers of frames, which the format's definition includes, are not counted
"""
"""Comment of the header on the fields, as the paper prints it, with deviations of traces made here."""

NO_WALL_CLOCK = "time_sec: since the first record of the trace; the moment that it began is not known\n"


@dataclass
class Wholeness:
    """Incomplete parts of a file, counted while it is read."""

    records: int = 0
    malformed: int = 0
    problems: list[str] = field(default_factory=list)
    """Descriptions of the first PROBLEMS_MAX problems: `FILE:LINE:COLUMN: RULE`."""
    truncated: bool = False
    """True if the file ends within a line."""

    def sentences(self, path: Path) -> list[str]:
        """Return notes for the user; empty when the file is complete."""
        notes = [f"{path}: {self.malformed} malformed records are left out"] if self.malformed else []
        notes += [f"  {problem}" for problem in self.problems]
        if self.malformed > len(self.problems):
            notes.append(f"  and {self.malformed - len(self.problems)} more")
        if self.truncated:
            notes.append(f"{path}: ends within a line; the {self.records} whole records before it are there")
        return notes


class Reader:
    """Open DLC trace: the header at once, batches on demand; `wholeness` covers the part read so far."""

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        """Open the file. Raises ArtefactError: no such file, or not a DLC trace.

        `strict` refuses malformed or truncated records, while reading.
        """
        self.path = path
        self.wholeness = Wholeness()
        self._strict = strict
        try:
            with path.open("rb") as file:
                self.header = Header.parse(self._header(file.read(HEADER_BYTES_MAX)))
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None

    def _header(self, start: bytes) -> bytes:
        found = re.search(rb"^" + re.escape(COLUMN_NAMES) + rb"\n", start, re.MULTILINE)
        if found:
            return start[: found.end()]
        if len(start) < HEADER_BYTES_MAX and b"==\nnum_workers:="[: len(start)] == start[:16]:
            if self._strict:
                raise ArtefactError(f"{self.path} ends within its header")
            self.wholeness.truncated = True
            return start
        raise ArtefactError(
            f"{self.path} is no DLC trace: it has no line of column names\nhint: the line before the records is `id`, `src`, "
            "`dst`, … with tabs between"
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all well-formed records in the file's order, about 100,000 at a time; `schema()` describes their columns."""
        schema = self.schema()
        line, last_id = 1 + self.header.text.count(b"\n"), None
        for text in self._blocks():
            if len(text) > LINE_BYTES_MAX and b"\n" not in text[:LINE_BYTES_MAX]:
                self._refuse([(line, 1, f"a line is at most {LINE_BYTES_MAX} bytes")], 1)
                line += 1
                text = text[text.index(b"\n") + 1 :]  # noqa: PLW2901
            read = dlc_columns(
                text,
                first_line=line,
                last_id=last_id,
                workers=self.header.workers,
                servers=self.header.servers,
            )
            line, last_id = line + read["lines"], read["last_id"]
            self._refuse(read["problems"], read["problem_count"])
            batch = _batch(read, schema)
            self.wholeness.records += len(batch)
            if len(batch):
                yield batch

    def schema(self) -> pa.Schema:
        """Return the columns of a batch; the header's text is in its metadata, so that Parquet keeps it."""
        return table_schema(self.header)

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole lines, one block at a time. An overlong line is passed whole, so that its rule is reported."""
        with self.path.open("rb") as file:
            file.seek(len(self.header.text))
            rest = [b""]
            while block := file.read(BLOCK_BYTES):
                end = block.rfind(b"\n") + 1
                if not end:
                    # For a line without an end, only its excessive length matters.
                    rest = rest[:1] if sum(map(len, rest)) > LINE_BYTES_MAX else rest
                    rest.append(block)
                    continue
                yield b"".join(rest) + block[:end]
                rest = [block[end:]]
        if any(rest):
            if self._strict:
                raise ArtefactError(
                    f"{self.path} ends within a line\nhint: without `--strict` all whole records are read"
                )
            self.wholeness.truncated = True

    def _refuse(self, problems: list[tuple[int, int, str]], count: int) -> None:
        notes = [f"{self.path}:{line}:{column}: {rule}" for line, column, rule in problems]
        if self._strict and notes:
            raise ArtefactError(
                f"{notes[0]}\nhint: without `--strict` malformed records are counted and left out"
            )
        self.wholeness.malformed += count
        self.wholeness.problems += notes[: PROBLEMS_MAX - len(self.wholeness.problems)]


def table_schema(header: Header) -> pa.Schema:
    """Return the columns of batches, with the header in the metadata."""
    pa = arrow()
    types = {
        "<i8": pa.int64(),
        "<i4": pa.int32(),
        "u1": pa.dictionary(pa.int8(), pa.string()),
        "i1": pa.int8(),
    }
    fields = [pa.field(name, types[dtype], nullable=name in NULL_IN_SETUP) for name, dtype in NUMBERS]
    fields.insert(-2, pa.field("id_dep", pa.string()))
    return pa.schema(fields, metadata={"hocket.format": "dlc", "dlc.header": header.text})


def header_of(schema: pa.Schema) -> Header | None:
    """Return the header in a table's metadata; None when the table is not a DLC trace."""
    text = (schema.metadata or {}).get(b"dlc.header")
    return None if text is None else Header.parse(text)


def write(path: Path, header: Header, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a trace; return the number of records. Raises ArtefactError when the file cannot be written."""
    records = 0
    try:
        with path.open("wb") as file:
            file.write(header.text)
            for batch in batches:
                file.write(lines(batch))
                records += len(batch)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None
    return records


def lines(batch: pa.RecordBatch) -> bytes:
    arrow()
    import pyarrow.compute as pc  # noqa: PLC0415  # an optional dependency, checked above

    def text(name: str) -> Any:
        return pc.cast(batch.column(name), "string")

    def joined(columns: list[Any], between: str) -> Any:
        return pc.binary_join_element_wise(*columns, between)

    if not len(batch):
        return b""
    start = joined([text(name) for name in ("id", "src", "dst", "length", "num_pp", "operation")], "\t")
    role = pc.if_else(pc.match_substring(text("operation"), "_Server"), ROLE[1], ROLE[0])
    peer = pc.binary_join_element_wise(role, text("peer"), "")
    op_id = joined([text("key"), text("operation_num"), peer], "-")
    times = [text(name) for name in ("dep_type", "d_time", "time_sec", "time_usec")]
    whole = joined([start, op_id, *times, batch.column("id_dep")], "\t")
    return "\n".join([*pc.coalesce(whole, start).to_pylist(), ""]).encode()


def codes(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return each record's kind: bits of PULL, RECV and SERVER; SETUP for set-up records."""
    dictionary = batch.column("operation")
    of = np.array([_code(word) for word in dictionary.dictionary.to_pylist()], np.uint8)
    found: np.ndarray[Any, np.dtype[np.uint8]] = of[dictionary.indices.to_numpy()]
    return found


def iterations(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each record's iteration of training, from 0; -1: set-up, initialisation and first pull.

    Worker 0 initialises the servers, so its training begins with operation number 4; the others' training with 2.
    """
    code = codes(batch)
    number = np.asarray(batch.column("operation_num").fill_null(0), np.int64)
    node = np.where(code & RECV != 0, batch.column("dst"), batch.column("src"))
    first = np.where((node == 0) & (code & SERVER == 0), 4, 2)
    return np.where(code == SETUP, -1, np.maximum((number - first) // 4, -1))


def _code(word: str) -> int:
    at = DLC_OPERATIONS.index(word)
    return at % 8 if at < DLC_SETUP_FIRST else SETUP


def _batch(read: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    pa = arrow()
    operation = np.frombuffer(read["operation"], np.uint8)
    setup = operation >= DLC_SETUP_FIRST
    count = len(operation)
    bits = None if not setup.any() else pa.py_buffer(np.packbits(~setup, bitorder="little").tobytes())
    columns = {}
    for name, _ in NUMBERS:
        valid = bits if name in NULL_IN_SETUP else None
        if name == "operation":
            indices = pa.array(operation.astype(np.int8))
            columns[name] = pa.DictionaryArray.from_arrays(indices, pa.array(DLC_OPERATIONS))
        else:
            buffers = [valid, pa.py_buffer(read[name])]
            columns[name] = pa.Array.from_buffers(schema.field(name).type, count, buffers)
    dependencies = [bits, pa.py_buffer(read["id_dep_ends"]), pa.py_buffer(read["id_dep"])]
    columns["id_dep"] = pa.Array.from_buffers(pa.string(), count, dependencies)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _count(text: bytes, name: bytes) -> int | None:
    found = re.search(rb"^" + name + rb":= (\d{1,5})$", text, re.MULTILINE)
    return int(found[1]) if found else None

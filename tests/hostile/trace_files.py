"""Small traces, written byte by byte and not with Hocket's own code; `tests/formats/test_golden_trace.py` compares the format."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

HEADER = struct.Struct("<8sIIIIQ32x")
RECORD = struct.Struct("<QQQQIIIIHHIQ")
NO_PEER = 2**32 - 1
SEND, INSTANCE, STEP = 5, 16, 32


def header(
    *,
    magic: bytes = b"HKTRACE1",
    version: int = 2,
    record_bytes: int = 64,
    rank: int = 0,
    world: int = 2,
    dropped: int = 0,
) -> bytes:
    """The first 64 bytes of a record file."""
    return HEADER.pack(magic, version, record_bytes, rank, world, dropped)


def record(
    kind: int,
    start_ns: int,
    end_ns: int,
    *,
    ready_ns: int | None = None,
    size_bytes: int = 0,
    instance: int = 0,
    peer: int = NO_PEER,
) -> bytes:
    """One record of program 7, op 3, thread 1."""
    ready_ns = start_ns if ready_ns is None else ready_ns
    return RECORD.pack(ready_ns, start_ns, end_ns, size_bytes, 7, instance, 3, peer, kind, 0, 1, 0)


def write_run(directory: Path, ranks: int = 2, **fields: object) -> None:
    """A `run.json` with one program, `bucket 0`; `fields` replace its own."""
    run = {
        "version": 1,
        "world": ranks,
        "hosts": [f"host{rank}" for rank in range(ranks)],
        "script": "train.py",
        "programs": [{"program": 7, "label": "bucket 0", "bucket": 0, "bytes": 64}],
        **fields,
    }
    (directory / "run.json").write_bytes(msgspec.json.encode(run))


def write_rank(directory: Path, content: bytes, rank: int = 0) -> Path:
    path = directory / f"rank-{rank}.hktrace"
    path.write_bytes(content)
    return path


def write_trace(directory: Path, *ranks: Sequence[bytes]) -> None:
    """A whole trace: the records of each rank."""
    write_run(directory, len(ranks))
    for rank, records in enumerate(ranks):
        write_rank(directory, header(rank=rank, world=len(ranks)) + b"".join(records), rank)

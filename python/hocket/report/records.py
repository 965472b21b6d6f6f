"""The files of a trace directory: `run.json`, and `rank-N.hktrace` as an array of records on one clock."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from hocket.artefacts.trace import RUN_FILE, RunInfo
from hocket.errors import ArtefactError

VERSION = 1
MAGIC = b"HKTRACE1"
HEADER = struct.Struct("<8sIIIIqQ24x")
RECORD = np.dtype(
    [
        ("ready_ns", "<i8"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("bytes", "<u8"),
        ("program", "<u4"),
        ("instance", "<u4"),
        ("op", "<u4"),
        ("peer", "<u4"),
        ("kind", "<u2"),
        ("flags", "<u2"),
        ("thread", "<u4"),
        ("reserved", "<u8"),
    ]
)
Records = npt.NDArray[np.void]


def read_run(path: Path) -> RunInfo:
    """Raises ArtefactError: missing, not JSON, against the schema, or of a newer version."""
    try:
        tree = msgspec.json.decode(path.read_bytes())
        if isinstance(tree, dict):
            _check_version(path, tree.get("version"))
        return msgspec.convert(tree, RunInfo)
    except OSError as error:
        raise ArtefactError(
            f"{path} cannot be read: {error.strerror}\nhint: give the directory that `--trace` named"
        ) from None
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{path} is not a run description: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path} is damaged or truncated: {error}") from None


def read_records(path: Path, rank: int, world: int) -> tuple[Records, list[str]]:
    """Whole records of one rank, on the clock of rank 0, and a sentence for each thing that is not whole.

    Raises ArtefactError: not a trace, of a newer version, damaged, or of another run.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) < HEADER.size:
        return np.empty(0, RECORD), [f"{path.name} ends within its header: it has no records."]
    magic, version, record_bytes, own_rank, own_world, offset_ns, dropped = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise ArtefactError(f"{path} is not a Hocket trace: it begins with {magic!r}")
    _check_version(path, version)
    if record_bytes != RECORD.itemsize:
        raise ArtefactError(
            f"{path} is damaged: records of {record_bytes} bytes instead of {RECORD.itemsize}"
        )
    if (own_rank, own_world) != (rank, world):
        raise ArtefactError(
            f"{path} is of rank {own_rank} of {own_world}, where {RUN_FILE} says rank {rank} of {world}\n"
            "hint: the directory mixes two runs; trace into an empty one"
        )
    count, rest = divmod(len(content) - HEADER.size, RECORD.itemsize)
    notes = []
    if rest:
        notes.append(
            f"{path.name} is truncated: its {count} whole records are shown, the part of one more is not."
        )
    if dropped:
        notes.append(f"{path.name}: {dropped} records did not fit the recorder's buffer and are missing.")
    records = np.frombuffer(content, RECORD, count, HEADER.size).copy()
    for field in ("ready_ns", "start_ns", "end_ns"):
        records[field] += offset_ns
    return records, notes


def _check_version(path: Path, version: object) -> None:
    if isinstance(version, int) and version > VERSION:
        raise ArtefactError(
            f"{path} has version {version}: this Hocket reads up to {VERSION}\n"
            "hint: use the Hocket that wrote it, or a newer one"
        )

"""The files of a trace directory: `run.json`, and `rank-N.hktrace` as an array of records on one clock."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
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


class LoadedProgram(Struct, frozen=True, kw_only=True):
    """A program of the run: its number, label and the bucket whose gradients it reduces (None: none)."""

    program: int
    label: str = ""
    bucket: int | None = None
    bytes: int = 0


class RunInfo(Struct, frozen=True, kw_only=True):
    """What was run: `hosts[rank]` is the host of each rank."""

    version: int
    world: int
    hosts: tuple[str, ...]
    script: str = ""
    started_at: str = ""
    plan: Plan | None = None
    cluster: Cluster | None = None
    profile: Profile | None = None
    programs: tuple[LoadedProgram, ...] = ()


def read_run(path: Path) -> RunInfo:
    """Raises ArtefactError: missing, not JSON, against the schema, or of a newer version."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"{path}: cannot be read: {error.strerror}; give the directory that --trace wrote"
        ) from None
    try:
        version = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("version", msgspec.Raw(b"null"))
        if isinstance(number := msgspec.json.decode(version), int) and number > VERSION:
            raise ArtefactError(
                f"{path}: version {number} is newer than {VERSION}, which this Hocket reads; update Hocket"
            )
        return msgspec.json.decode(text, type=RunInfo)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtefactError(f"{path}: is not a run description: {error}") from None


def read_records(path: Path) -> tuple[Records, list[str]]:
    """Whole records of one rank, on the common clock, and a sentence for each thing that is not whole."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) < HEADER.size:
        return np.empty(0, RECORD), [f"{path.name} ends within its header: it has no records."]
    magic, version, record_bytes, _rank, _world, offset_ns, dropped = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise ArtefactError(f"{path}: is not a Hocket trace: it begins with {magic!r}")
    if version > VERSION:
        raise ArtefactError(
            f"{path}: version {version} is newer than {VERSION}, which this Hocket reads; update Hocket"
        )
    if record_bytes != RECORD.itemsize:
        raise ArtefactError(
            f"{path}: records of {record_bytes} bytes instead of {RECORD.itemsize}: the header is damaged"
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

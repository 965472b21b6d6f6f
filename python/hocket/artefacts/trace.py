"""Traces of runs: a directory with `run.json`, `changes.jsonl`, `rank-N.hktrace`, `metrics-N.jsonl`,
`clock-N.jsonl`, `usage-N.jsonl`, `turns-N.json`, `exchanges.jsonl`.

Record files are written by the executors (`crates/trace`, whose `layout.rs` says what lies where): a header, then records of one
size, little-endian. A file that a crash cut off is read as far as it goes. NumPy is loaded when records are read.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hocket import _native, typed
from hocket.artefacts import writing
from hocket.artefacts.change import Change
from hocket.artefacts.clock import Alignment, Reading
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.decoding import MALFORMED, bytes_of, why
from hocket.artefacts.extent import ENDS, Extent
from hocket.artefacts.goodput import Goodput, whole
from hocket.artefacts.lines import append, read_lines
from hocket.artefacts.members_change import MembersChange
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.upgrade import current
from hocket.errors import ArtefactError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Records = npt.NDArray[np.void]

RUN_FILE = "run.json"
RUN_VERSION = 1
"""Newest supported version of `run.json`."""

RECORDS_VERSION = _native.TRACE_VERSION
"""Newest supported version of record files."""

MAGIC = _native.TRACE_MAGIC
NO_PEER = _native.TRACE_NO_PEER
"""`peer` of a record that involves no other rank."""

HEADER = struct.Struct(_native.TRACE_HEADER)
"""Magic, version, bytes of a record, rank, world, records dropped; bounds: bytes, first step, first one after it; end's reason."""

FIELDS = tuple(_native.TRACE_FIELDS)
"""Fields of a record, as NumPy names and types."""

RECORD_BYTES = _native.TRACE_RECORD_BYTES

_clock_decoder = typed.json_decoder(Reading)
_change_decoder = typed.json_decoder(Change)
_members_change_decoder = typed.json_decoder(MembersChange)


class Kind(IntEnum):
    """Subject of a record: an op, a program from launch to completion, or a part of the training step."""

    COPY = 1
    CAST = 2
    REDUCE = 3
    APPLY = 4
    SEND = 5
    RECV = 6
    RECORD = 7
    LIBRARY = 8
    INSTANCE = 16
    STEP = 32
    FORWARD = 33
    BACKWARD = 34
    WAIT = 35
    OPTIMIZER = 36
    UPDATE = 37


class LoadedProgram(Struct, frozen=True, kw_only=True):
    """Program of the run: its number, label and the bucket whose gradients it reduces (None: none).

    With parameter servers, a bucket is a key, and the program pushes and pulls it for `worker`.
    """

    program: int
    label: str = ""
    bucket: int | None = None
    worker: int | None = None
    bytes: int = 0


class Roles(Struct, frozen=True, kw_only=True):
    """Roles in a run of parameter servers alone: the first `workers` ranks work, the others serve. `staleness`: 0 synchronous, None
    any; where keys differ, each key's staleness is in the run's plan."""

    workers: int
    servers: int
    staleness: int | None


class RunInfo(Struct, frozen=True, kw_only=True):
    """Description of a run: `hosts[rank]` is the host of each rank, `clocks[rank]` the rank whose `clock-N.jsonl` is of its clock,
    `versions` those of what rank 0 runs on, by name, `relays` ways between two ranks that do not reach each other, with the ranks
    between them.

    If all ranks have one clock, or `clocks` is empty, nothing has to be aligned.
    """

    version: int = RUN_VERSION
    world: int
    hosts: tuple[str, ...]
    script: str = ""
    started_at: str = ""
    plan: Plan | None = None
    cluster: Cluster | None = None
    profile: Profile | None = None
    programs: tuple[LoadedProgram, ...] = ()
    roles: Roles | None = None
    clocks: tuple[int, ...] = ()
    relays: tuple[tuple[int, ...], ...] = ()
    versions: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class RankRecords(Extent):
    """Records of one rank, and what is not whole about them."""

    records: Records
    clock_drift_ppm: float | None = 0.0
    """Drift of the host's clock against the job's, in millionths; None: too few readings to tell."""
    clock_error_ns: float | None = 0.0
    """Bound of every record's error against the job's clock; None: the rank's clock was never read."""


@dataclass(frozen=True)
class Trace:
    """A trace directory. `run.json` is read; the ranks' files are read when they are asked for."""

    directory: Path
    run: RunInfo

    def records(self, rank: int) -> Records:
        """Return the rank's records, as they ended: an array of `FIELDS`, times in nanoseconds on the job's clock.

        Raises ArtefactError as `rank_records`.

        Example: `send_bytes = records["bytes"][records["kind"] == Kind.SEND].sum()`
        """
        return self.rank_records(rank).records

    def rank_records(self, rank: int) -> RankRecords:
        """Return the rank's records, and whether they are all.

        Raises ArtefactError: the file cannot be read, is not Hocket's, of a newer version, or of another run.
        """
        path = records_file(self.directory, rank)
        if len(set(self.run.clocks)) < 2:
            return _read_records(path, rank, self.run.world)
        clock = read_clock(self.directory, self.run.clocks[rank])
        return _aligned(_read_records(path, rank, self.run.world), clock)

    def extent(self, rank: int) -> Extent:
        """Return how much of the run the rank's records cover, without reading them. Raises ArtefactError as `rank_records`."""
        return _extent(records_file(self.directory, rank), rank, self.run.world)[0]

    def metrics(self, rank: int) -> tuple[dict[str, Any], ...]:
        """Return values that the rank's script logged, in order; empty when it logged nothing.

        A last line that was cut off is left out. Raises ArtefactError when another line is no JSON object.
        """
        return read_lines(metrics_file(self.directory, rank), _metrics_row, "a JSON object")

    def changes(self) -> tuple[Change, ...]:
        """Return the job's changes of its plan, in order; a last line that was cut off is left out.

        Raises ArtefactError when another line is no change.
        """
        return read_lines(changes_file(self.directory), _change_decoder.decode, "a change of a plan")

    def members_changes(self) -> tuple[MembersChange, ...]:
        """Return changes of members (ranks lost, left or joined), in order; a last line that was cut off is left out.

        Raises ArtefactError when another line is no change of members.
        """
        return tuple(each for each in self._members_lines() if each.what != "ended")

    def goodput(self) -> Goodput | None:
        """Return the goodput of an elastic job until its last change, or its end; None: it is not known. Raises as
        `members_changes`."""
        return whole(each.goodput for each in self._members_lines() if each.goodput is not None)

    def _members_lines(self) -> tuple[MembersChange, ...]:
        return read_lines(members_file(self.directory), _members_change_decoder.decode, "a change of members")


@dataclass(frozen=True)
class Recording:
    """Trace in memory, as `Trace` reads it from files, or converted from another format."""

    run: RunInfo
    ranks: tuple[Records, ...]

    def records(self, rank: int) -> Records:
        """Return the rank's records, as `Trace.records` does."""
        return self.ranks[rank]


def read(directory: Path) -> Trace:
    """Return the trace in a directory.

    Raises ArtefactError: there is no trace, or `run.json` is truncated, of a newer version or no run description.

    Example: `for rank in range((trace := read(Path("out"))).run.world): print(len(trace.records(rank)))`
    """
    path = directory / RUN_FILE
    try:
        tree = typed.of_json(bytes_of(path))
    except OSError as error:
        raise ArtefactError(
            f"{path} cannot be read: {error.strerror}\nhint: give the directory that `--trace` named"
        ) from None
    except MALFORMED as error:
        raise ArtefactError(
            f"{path} is damaged or truncated: {why(error)}\nhint: run again with `--trace` to an empty directory"
        ) from None
    if isinstance(tree, dict):
        _check_version(path, tree.get("version"), RUN_VERSION)
    try:
        run = run_of(tree)
    except msgspec.ValidationError as error:
        raise ArtefactError(f"{path} is not a run description: {error}") from None
    if run.world < 1 or len(run.hosts) != run.world:
        raise ArtefactError(f"{path} names {len(run.hosts)} hosts for a world of {run.world} ranks")
    if run.clocks and (len(run.clocks) != run.world or not all(0 <= each < run.world for each in run.clocks)):
        raise ArtefactError(f"{path} names clocks {list(run.clocks)} for a world of {run.world} ranks")
    return Trace(directory, run)


def run_of(tree: Any) -> RunInfo:
    """Return the description of a run from the tree of a `run.json`. Raises msgspec.ValidationError."""
    if isinstance(tree, dict) and tree.get("plan") is not None:
        tree = {**tree, "plan": current(tree["plan"])}
    return typed.of_builtins(tree, RunInfo)


def write_run(directory: Path, info: RunInfo) -> None:
    """Write `run.json`, replacing one that is there; the directory is made if missing.

    Raises ArtefactError when the file cannot be written.
    """
    path = directory / RUN_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writing.write(path, msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None


def write(directory: Path, recording: Recording) -> None:
    """Write a trace directory: `run.json` and each rank's records.

    Raises ArtefactError when a file cannot be written.
    """
    write_run(directory, recording.run)
    world = recording.run.world
    for rank, records in enumerate(recording.ranks):
        path = records_file(directory, rank)
        try:
            with path.open("wb") as file:
                file.write(HEADER.pack(MAGIC, RECORDS_VERSION, RECORD_BYTES, rank, world, 0, 0, 0, 0, 0))
                records.tofile(file)
        except OSError as error:
            raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None


def append_metrics(directory: Path, rank: int, values: dict[str, Any]) -> None:
    """Add values that a rank logged in a step. Raises ArtefactError when the file cannot be written."""
    append(metrics_file(directory, rank), values)


def append_clock(directory: Path, rank: int, reading: Reading) -> None:
    """Add a reading of a rank's clock. Raises ArtefactError when the file cannot be written."""
    append(clock_file(directory, rank), reading)


def append_change(directory: Path, change: Change) -> None:
    """Add a change of the job's plan. Raises ArtefactError when the file cannot be written."""
    append(changes_file(directory), change)


def append_members_change(directory: Path, change: MembersChange) -> None:
    """Add a change of the job's members. Raises ArtefactError when the file cannot be written."""
    append(members_file(directory), change)


def read_clock(directory: Path, rank: int) -> tuple[Reading, ...]:
    """Return readings of a rank's clock in their order; none without a file. A last line that was cut off is left out.

    Raises ArtefactError when another line is no reading.
    """
    return read_lines(clock_file(directory, rank), _clock_decoder.decode, "a reading of a clock")


def records_file(directory: Path, rank: int) -> Path:
    """Return the path of a rank's records."""
    return directory / f"rank-{rank}.hktrace"


def metrics_file(directory: Path, rank: int) -> Path:
    """Return the path of a rank's logged values, one JSON object a line."""
    return directory / f"metrics-{rank}.jsonl"


def members_file(directory: Path) -> Path:
    """Return the path of changes of an elastic job's members, which the launcher writes, one `MembersChange` a line."""
    return directory / "members.jsonl"


def changes_file(directory: Path) -> Path:
    """Return the path of changes of the job's plan, which rank 0 writes, one `Change` a line."""
    return directory / "changes.jsonl"


def experience_file(directory: Path) -> Path:
    """Return the path of results of trials of plans, which rank 0 writes (`hocket.artefacts.experience`)."""
    return directory / "experience.jsonl"


def clock_file(directory: Path, rank: int) -> Path:
    """Return the path of readings of a rank's clock against the job's, one JSON object a line."""
    return directory / f"clock-{rank}.jsonl"


def kind_name(kind: int) -> str:
    """Return the name of a record's kind, as shown to people; unknown kinds have a number."""
    try:
        return Kind(kind).name.lower()
    except ValueError:
        return f"kind {kind}"


def _read_records(path: Path, rank: int, world: int) -> RankRecords:
    import numpy as np  # noqa: PLC0415  # writers of traces do not need it

    extent, count = _extent(path, rank, world)
    records: Records = np.empty(0, list(FIELDS))
    if count:
        try:
            records = np.fromfile(path, list(FIELDS), count, offset=HEADER.size)
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    return RankRecords(records=records, **asdict(extent))


def _extent(path: Path, rank: int, world: int) -> tuple[Extent, int]:
    """Return the extent, and the number of whole records."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER.size)
            rest_bytes = path.stat().st_size - HEADER.size
    except FileNotFoundError:
        return Extent(missing=True), 0
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    if len(header) < HEADER.size:
        if not MAGIC.startswith(header[: len(MAGIC)]):
            raise _not_a_trace(path, header)
        return Extent(truncated=True), 0
    count, part_bytes = divmod(max(0, rest_bytes), RECORD_BYTES)
    return _check_header(path, header, rank, world, truncated=part_bytes > 0), count


def _aligned(own: RankRecords, readings: tuple[Reading, ...]) -> RankRecords:
    """Align records with the job's clock."""
    clock = Alignment.of(readings)
    if not readings:
        return replace(own, clock_drift_ppm=None, clock_error_ns=None)
    error_ns = 0.0
    for field in ("ready_ns", "start_ns", "end_ns"):
        times_ns = own.records[field]
        error_ns = max(error_ns, float(clock.errors_ns(times_ns).max(initial=0.0)))
        own.records[field] = times_ns + clock.offsets_ns(times_ns)
    return replace(own, clock_drift_ppm=clock.drift_ppm, clock_error_ns=error_ns)


def _check_header(path: Path, header: bytes, rank: int, world: int, *, truncated: bool) -> Extent:
    magic, version, record_bytes, own_rank, own_world, dropped, *bounds = HEADER.unpack(header)
    if magic != MAGIC:
        raise _not_a_trace(path, header)
    _check_version(path, version, RECORDS_VERSION)
    if version < 1 or record_bytes != RECORD_BYTES:
        raise ArtefactError(
            f"{path} is damaged: version {version}, {record_bytes} bytes a record instead of {RECORD_BYTES}\n"
            "hint: run again with `--trace` to an empty directory"
        )
    if (own_rank, own_world) != (rank, world):
        raise ArtefactError(
            f"{path} is of rank {own_rank} of {own_world}, where {RUN_FILE} says rank {rank} of {world}\n"
            "hint: the directory mixes two runs; trace into an empty one"
        )
    bytes_max, first, stop, end = bounds
    return Extent(
        truncated=truncated,
        dropped=dropped,
        steps=(first, stop or None),
        bytes_max=bytes_max or None,
        end=ENDS[min(end, len(ENDS) - 1)],
    )


def _not_a_trace(path: Path, header: bytes) -> ArtefactError:
    return ArtefactError(f"{path} is not a Hocket trace: it begins with {header[: len(MAGIC)]!r}")


def _check_version(path: Path, version: object, newest: int) -> None:
    if isinstance(version, int) and version > newest:
        raise ArtefactError(
            f"{path} has version {version}: this Hocket reads up to {newest}\n"
            "hint: use the Hocket that wrote it, or a newer one"
        )


def _metrics_row(line: bytes) -> dict[str, Any]:
    row = json.loads(line)  # NaN is what scripts log when training diverges; it is no JSON, but read here
    if not isinstance(row, dict):
        raise ValueError  # as for text that is no JSON
    return row

"""Formats for converting traces, the losses of each, and the one function that converts.

Adding a format takes a file beside this one and an entry here. Two forms travel between formats: DLC messages, batch by batch, and
Hocket's own records. `dlc_native`, `dlc_server` and `dlc_all_reduce` convert between the two.
"""

from __future__ import annotations

import gzip
import importlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hocket.artefacts import trace as artefact
from hocket.artefacts import writing
from hocket.artefacts.trace import Recording, Trace
from hocket.errors import ArtefactError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from hocket.tools.formats.dlc import Header, Reader


@dataclass(frozen=True)
class Format:
    """Reader and writer of a format, and the losses on each way; None for a way that does not exist."""

    name: str
    title: str
    suffixes: tuple[str, ...] = ()
    reading: str | None = None
    """Losses on reading; empty: none."""
    from_records: str | None = None
    """Losses on writing Hocket's records."""
    from_dlc: str | None = None
    """Losses on writing DLC messages."""


BY_RECORDS = "what a record waits for, dispatch numbers, set-up records, the header's text"

DLC_FILES = "worker*.txt"
"""Files of a directory that `hocket trace convert` filled."""

FORMATS = {
    each.name: each
    for each in (
        Format(
            "dlc", "SketchDLC's text, one file per node", (".txt",), "",
            "spans of steps, nanoseconds, plan, cluster and profile, what scripts logged", "",
        ),
        Format("native", "Hocket's trace directory", (), "",
               "what scripts logged, counts of dropped records, bounds of clocks' errors", BY_RECORDS),
        Format("parquet", "Parquet, a row per record", (".parquet", ".pq"), "",
               "what scripts logged, counts of dropped records, bounds of clocks' errors", ""),
        Format("chrome", "Chrome's JSON for ui.perfetto.dev", (".json",), None,
               "plan, cluster and profile, what scripts logged", BY_RECORDS),
        Format(
            "chakra", "Chakra execution traces, NAME.RANK.et", (".et",),
            "dependencies, tensors and attributes of nodes",
            "messages, waiting, threads: a program is an all-reduce of its bytes, computation the time before its launch",
            f"{BY_RECORDS}; messages: a key of an iteration is an all-reduce of its largest message",
        ),
        Format("kineto", "PyTorch profiler JSON, a file or a directory of all ranks'", (),
               "CPU ops, names of kernels, memory, stacks; clocks of ranks stay as they were recorded, not aligned"),
        Format("goal", "GOAL text for LogGOPSim", (".goal",), None,
               "programs, iterations, waiting: dependencies of messages are inferred from times", BY_RECORDS),
    )
}  # fmt: skip
"""Formats by name."""

WRITABLE = tuple(name for name, each in FORMATS.items() if each.from_records is not None)
READABLE = tuple(name for name, each in FORMATS.items() if each.reading is not None)


@dataclass(frozen=True)
class Messages:
    """DLC trace: its header, and batches that can be read once. `reader` counts malformed records."""

    header: Header
    batches: Iterable[pa.RecordBatch]
    reader: Reader | None = None


@dataclass(frozen=True)
class Opened:
    """Opened path: a DLC trace or Hocket's records, and notes for the user."""

    form: str
    content: Messages | Trace | Recording
    notes: tuple[str, ...] = ()


def recognise(path: Path) -> str:
    """Return the format of a path's content. Raises ArtefactError when there is nothing, UsageError when no reader knows it."""
    if path.is_dir():
        if (path / artefact.RUN_FILE).exists():
            return "native"
        return "dlc" if any(path.glob(DLC_FILES)) else "kineto"
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    if start.startswith(b"PAR1"):
        return "parquet"
    if path.suffix == ".et":
        return "chakra"
    if start.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(path) as file:
                start = file.read(16)
        except (OSError, EOFError, zlib.error) as error:
            raise ArtefactError(f"{path} cannot be read: {error}") from None
    if start.lstrip().startswith(b"{"):
        return "kineto"
    if start.startswith(b"==") or path.suffix == ".txt":
        return "dlc"
    raise UsageError(f"{path} is of no format that is read\nhint: there are {', '.join(READABLE)}")


def open_trace(path: Path, *, strict: bool = False) -> Opened:
    """Open a trace of any readable format. `strict` refuses malformed records and truncated files.

    Raises ArtefactError as the format's reader does, UsageError when the format is unknown.
    """
    form = recognise(path)
    if form == "native":
        return Opened(form, _whole(artefact.read(path), strict=strict))
    if form == "dlc":
        from hocket.tools.formats import dlc  # noqa: PLC0415  # needs pyarrow

        if path.is_dir():
            return _all_ranks(path, strict=strict)
        reader = dlc.Reader(path, strict=strict)
        return Opened(form, Messages(reader.header, reader.batches(), reader))
    if form == "parquet":
        from hocket.tools.formats import parquet  # noqa: PLC0415  # needs pyarrow

        file = parquet.Reader(path)
        if file.dlc_header is None:
            return Opened(form, file.recording())
        return Opened(form, Messages(file.dlc_header, file.batches()))
    module = importlib.import_module("hocket.tools.formats." + {"chakra": "chakra_native"}.get(form, form))
    recording, notes = module.read(path)
    if strict and notes:
        raise ArtefactError(f"{notes[0]}\nhint: without `--strict` it is read as far as it is known")
    return Opened(form, recording, tuple(notes))


def _all_ranks(directory: Path, *, strict: bool) -> Opened:
    """Open the files of an all-reduce, one per rank, as the run that they were."""
    from hocket.tools.formats import dlc, dlc_all_reduce  # noqa: PLC0415  # need pyarrow

    paths = sorted(directory.glob(DLC_FILES))
    readers = [dlc.Reader(path, strict=strict) for path in paths]
    others = [
        path
        for path, reader in zip(paths, readers, strict=True)
        if not dlc_all_reduce.is_all_reduce(reader.header)
    ]
    if others:
        raise UsageError(
            f"{others[0]} is not of an all-reduce\nhint: give the files of a DLC trace, one per node, instead of {directory}"
        )
    recording = dlc_all_reduce.to_native((reader.header, reader.batches()) for reader in readers)
    notes = [
        note for path, reader in zip(paths, readers, strict=True) for note in reader.wholeness.sentences(path)
    ]
    return Opened("dlc", recording, tuple(notes))


def form_of(output: Path) -> str:
    """Return the format that a path's name implies. Raises UsageError when it implies none, or one that cannot be written."""
    for each in FORMATS.values():
        if each.name in WRITABLE and output.name.endswith(each.suffixes or ("/",)):
            return each.name
    if not output.suffix:
        return "native"
    raise UsageError(
        f"the name {output} does not say its format\nhint: give `--format` one of {', '.join(WRITABLE)}"
    )


def losses(source: Opened, to: str) -> list[str]:
    """Return the losses on the way to another format: a phrase each."""
    reading = FORMATS[source.form].reading
    writing = FORMATS[to].from_dlc if isinstance(source.content, Messages) else FORMATS[to].from_records
    if to == "dlc" and not isinstance(source.content, Messages) and source.content.run.roles is not None:
        writing = "computation, nanoseconds, names"
    if source.form == to and isinstance(source.content, Messages):
        writing = ""
    return [each for each in (reading, writing, _messages_missing(source, to)) if each]


def _messages_missing(source: Opened, to: str) -> str | None:
    """Return the losses of message formats with programs that recorded no messages."""
    if to not in ("dlc", "goal") or isinstance(source.content, Messages):
        return None
    from hocket.tools.formats.launches import without_messages  # noqa: PLC0415  # needs NumPy

    counts = [without_messages(source.content.records(rank)) for rank in range(source.content.run.world)]
    launches, silent = (sum(each) for each in zip(*counts, strict=True))
    if not silent:
        return None
    return f"{silent} of {launches} launches of programs, which recorded no message (ranks of one host share memory)"


def complaints(source: Opened, path: Path) -> list[str]:
    """Return incomplete or unknown parts of a trace that has been read: a sentence each."""
    content = source.content
    reader = content.reader if isinstance(content, Messages) else None
    limits = _limits(content) if isinstance(content, Trace) else []
    return [*source.notes, *limits, *(reader.wholeness.sentences(path) if reader else [])]


def _limits(trace: Trace) -> list[str]:
    """Return a sentence on the limits of ranks' files, for all that have the same limits."""
    ranks: dict[str, list[int]] = {}
    for rank in range(trace.run.world):
        for limit in trace.extent(rank).limits:
            ranks.setdefault(limit, []).append(rank)
    return [
        f"{'the file of rank' if len(own) == 1 else 'each file of ranks'} {', '.join(map(str, own))} {limit}"
        for limit, own in ranks.items()
    ]


def convert(source: Opened, output: Path, to: str) -> int:
    """Write an opened trace in another format; return the number of records, slices or nodes written.

    Raises ArtefactError when reading or writing fails, UsageError when the format cannot be written.
    """
    if to not in WRITABLE:
        raise UsageError(f"format `{to}` is not written")
    messages = isinstance(source.content, Messages)
    if to in ("native", "chakra") or (to == "dlc" and not messages):
        return _write(source.content, output, to)
    # A whole file appears at once: an unreadable trace leaves nothing, and a trace may replace
    # itself.
    if not output.parent.is_dir():
        raise ArtefactError(f"{output} cannot be written: there is no directory {output.parent}")
    try:
        with writing.replacing(output) as partial:
            return _write(source.content, partial, to)
    except OSError as error:
        raise ArtefactError(f"{output} cannot be written: {error.strerror}") from None


def _write(content: Messages | Trace | Recording, output: Path, to: str) -> int:
    return (
        _from_dlc(content, output, to) if isinstance(content, Messages) else _from_native(content, output, to)
    )


def _from_dlc(messages: Messages, output: Path, to: str) -> int:
    from hocket.tools.formats import dlc, dlc_all_reduce, dlc_native, parquet  # noqa: PLC0415  # need pyarrow

    if to == "dlc":
        return dlc.write(output, messages.header, messages.batches)
    if to == "parquet":
        return parquet.write(output, dlc.table_schema(messages.header), messages.batches)
    if dlc_all_reduce.is_all_reduce(messages.header):
        return _from_native(dlc_all_reduce.to_native([(messages.header, messages.batches)]), output, to)
    return _from_native(dlc_native.to_native(messages.header, messages.batches), output, to)


def _from_native(trace: Trace | Recording, output: Path, to: str) -> int:
    if to == "native":
        recording = Recording(trace.run, tuple(trace.records(rank) for rank in range(trace.run.world)))
        artefact.write(output, recording)
        return sum(len(records) for records in recording.ranks)
    if to == "parquet":
        from hocket.tools.formats import parquet  # noqa: PLC0415  # needs pyarrow

        return parquet.write_native(output, trace)
    if to == "dlc":
        from hocket.tools.formats import dlc, dlc_all_reduce, dlc_server  # noqa: PLC0415  # need pyarrow

        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtefactError(
                f"{output} cannot be made: {error.strerror}\nhint: a run of all ranks is a directory"
            ) from None
        if trace.run.roles is not None:
            served = dlc_server.to_dlc(trace, trace.run.roles)
            return sum(dlc.write(output / f"{node}.txt", header, batches) for node, header, batches in served)
        files = dlc_all_reduce.to_dlc(trace)
        return sum(
            dlc.write(output / f"worker{rank}.txt", header, batches) for rank, header, batches in files
        )
    module: Any = importlib.import_module("hocket.tools.formats." + {"chakra": "chakra_native"}.get(to, to))
    return int(module.write(trace, output))


def _whole(trace: Trace, *, strict: bool) -> Trace:
    """Raise ArtefactError for an incomplete trace if `strict`."""
    for rank in range(trace.run.world) if strict else ():
        own = trace.extent(rank)
        if not own.whole:
            what = (
                "has no file"
                if own.missing
                else "has a truncated file"
                if own.truncated
                else f"dropped {own.dropped} records"
            )
            raise ArtefactError(
                f"{trace.directory}: rank {rank} {what}\nhint: without `--strict` the rest is read"
            )
    return trace

"""Traces as Parquet, which pandas, polars and DuckDB read: a row per record.

A native trace has a column `rank` and those of its records, `peer` null if there is none, `kind_name` for people, times
in nanoseconds on the job's clock; `run.json` is in the file's metadata. A DLC trace has the columns of
`hocket.tools.formats.dlc`, and its header in the metadata. Both are written and read a batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from hocket import typed
from hocket._native import DLC_OPERATIONS
from hocket.artefacts.trace import FIELDS, NO_PEER, Recording, RunInfo, Trace, kind_name, run_of
from hocket.errors import ArtefactError
from hocket.tools.formats import dlc
from hocket.tools.formats.arrow import arrow

if TYPE_CHECKING:
    import pyarrow as pa

RANKS_MAX = 1 << 20
"""Limit of ranks: a larger number is damage."""


def write_native(path: Path, trace: Trace | Recording) -> int:
    """Write a native trace; return the number of records. Raises ArtefactError when it cannot be read or written."""
    pa = arrow()
    schema = _native_schema(trace.run)
    batches = (_native_batch(rank, trace.records(rank), schema) for rank in range(trace.run.world))
    return write(path, schema, (batch for batch in batches if isinstance(batch, pa.RecordBatch)))


def write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches, with the schema's metadata; return the number of rows. Raises ArtefactError when the file cannot be
    written."""
    arrow()
    import pyarrow.parquet as pq  # noqa: PLC0415  # an optional dependency, checked above

    rows = 0
    try:
        with pq.ParquetWriter(path, schema, compression="zstd") as file:
            for batch in batches:
                file.write_batch(batch)
                rows += len(batch)
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None
    return rows


class Reader:
    """Open Parquet file of one of the two kinds; `dlc_header` is None for a native trace."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises ArtefactError: no such file, not Parquet, or not written by Hocket."""
        pa = arrow()
        import pyarrow.parquet as pq  # noqa: PLC0415  # an optional dependency, checked above

        self.path = path
        try:
            self._file = pq.ParquetFile(path)
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror or error}") from None
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise ArtefactError(f"{path} is no Parquet file, or a damaged one: {error}") from None
        schema = self._file.schema_arrow
        self.dlc_header = dlc.header_of(schema)
        wanted = dlc.table_schema(self.dlc_header) if self.dlc_header else _native_schema(None)
        missing = sorted(set(wanted.names) - set(schema.names))
        if missing:
            raise ArtefactError(
                f"{path} is no trace: it has no column {', '.join(missing)}\n"
                "hint: write it with `hocket trace convert`; metadata must stay when other tools rewrite it"
            )
        self._schema = wanted

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows. Raises ArtefactError when the file is damaged, or has impossible values."""
        pa = arrow()
        try:
            for batch in self._file.iter_batches(1 << 17, columns=self._schema.names):
                columns = [batch.column(field.name).cast(field.type) for field in self._schema]
                self._check(columns)
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ArtefactError(f"{self.path} is damaged: {error}") from None

    def _check(self, columns: list[Any]) -> None:
        for field, column in zip(self._schema, columns, strict=True):
            if not field.nullable and column.null_count:
                raise ArtefactError(f"{self.path} has rows without `{field.name}`")
            if field.name == "operation":
                unknown = set(column.dictionary.to_pylist()) - set(DLC_OPERATIONS)
                if unknown:
                    raise ArtefactError(
                        f"{self.path} has operations that DLC does not know: {', '.join(sorted(map(str, unknown)))}"
                    )

    def recording(self) -> Recording:
        """Return the native trace. Raises ArtefactError when the file is damaged."""
        text = (self._file.schema_arrow.metadata or {}).get(b"hocket.run")
        if text is None:
            raise ArtefactError(
                f"{self.path} has no `hocket.run` in its metadata: it was not written by Hocket"
            )
        try:
            run = run_of(typed.of_json(text))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ArtefactError(f"{self.path}: its `hocket.run` is no run description: {error}") from None
        if not 0 < run.world <= RANKS_MAX or len(run.hosts) != run.world:
            raise ArtefactError(f"{self.path} names {len(run.hosts)} hosts for a world of {run.world} ranks")
        parts: list[list[Any]] = [[] for _ in range(run.world)]
        for batch in self.batches():
            ranks = batch.column("rank").to_numpy()
            if len(ranks) and not 0 <= ranks.min() <= ranks.max() < run.world:
                raise ArtefactError(f"{self.path} has rank {ranks.max()} in a world of {run.world}")
            records = _records(batch)
            for rank in np.unique(ranks).tolist():
                parts[rank].append(records[ranks == rank])
        none = np.empty(0, list(FIELDS))
        return Recording(run, tuple(np.concatenate([none, *each]) for each in parts))


def _native_schema(run: RunInfo | None) -> pa.Schema:
    pa = arrow()
    fields = [pa.field("rank", pa.int32(), nullable=False)]
    for name, dtype in FIELDS:
        nullable = name == "peer"
        fields.append(pa.field(name, pa.from_numpy_dtype(np.dtype(dtype)), nullable=nullable))
    fields.append(pa.field("kind_name", pa.dictionary(pa.int16(), pa.string()), nullable=False))
    metadata = {"hocket.format": "native"} | ({"hocket.run": msgspec.json.encode(run)} if run else {})
    return pa.schema(fields, metadata=metadata)


def _native_batch(rank: int, records: Any, schema: pa.Schema) -> pa.RecordBatch:
    pa = arrow()
    kinds, which = np.unique(records["kind"], return_inverse=True)
    columns: list[Any] = [pa.array(np.full(len(records), rank, np.int32))]
    for name, _ in FIELDS:
        column = np.ascontiguousarray(records[name])
        columns.append(pa.array(column, mask=column == NO_PEER if name == "peer" else None))
    names = pa.array([kind_name(kind) for kind in kinds.tolist()], pa.string())
    columns.append(pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int16)), names))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _records(batch: pa.RecordBatch) -> Any:
    records = np.empty(len(batch), list(FIELDS))
    for name, _ in FIELDS:
        column = batch.column(name)
        records[name] = column.fill_null(NO_PEER) if name == "peer" else column
    return records

"""Messages as NumPy rows, from DLC batches and from Hocket's records, and a long trace cut into complete iterations.

All questions use these rows, one part of the trace at a time, so that memory does not grow with the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hocket.artefacts.trace import Kind
from hocket.tools.formats import dlc, dlc_all_reduce
from hocket.tools.formats.launches import numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from hocket.artefacts.trace import Records

Rows = npt.NDArray[np.void]
"""Array of `FIELDS`."""

FIELDS = (
    ("code", "u1"),  # as in `formats.dlc`: bits PULL, RECV, SERVER, or SETUP
    ("iteration", "<i8"),  # -1: before training
    ("node", "<i4"),  # the node whose record it is
    ("src", "<i4"),
    ("dst", "<i4"),
    ("length", "<i8"),
    ("key", "<i4"),
    ("num", "<i4"),
    ("peer", "<i4"),
    ("dep_type", "i1"),
    ("d_time_us", "<i8"),
    ("time_ns", "<i8"),
    ("dep_key", "<i4"),
    ("dep_num", "<i4"),
    ("num_pp", "<i8"),
)

OPEN_ITERATIONS = 64
"""Iterations that a server's workers may be apart before the oldest is analysed; its later records count as late."""

NEWEST_SHARE = 0.999
"""Quantile of the records' iterations that counts as the newest: one damaged number must not close all open ones."""


def of_dlc(batch: pa.RecordBatch) -> Rows:
    """Return the rows of a batch of `formats.dlc`, without ops that move nothing; set-up records have no key and no time."""
    batch = dlc_all_reduce.messages(batch)
    rows = np.zeros(len(batch), list(FIELDS))
    rows["code"], rows["iteration"] = dlc.codes(batch), dlc.iterations(batch)
    same = ("src", "dst", "length", "key", "peer", "dep_type", "dep_key", "dep_num", "num_pp")
    for name, column in (*zip(same, same, strict=True), ("num", "operation_num"), ("d_time_us", "d_time")):
        rows[name] = _numbers(batch, column)
    rows["node"] = np.where(rows["code"] & dlc.RECV != 0, rows["dst"], rows["src"])
    setup = rows["code"] == dlc.SETUP
    # A set-up record does not name the node that wrote it: the node whose file it is in.
    nodes, counts = np.unique(rows["node"][~setup], return_counts=True)
    rows["node"][setup] = nodes[counts.argmax()] if len(nodes) else rows["src"][setup]
    rows["time_ns"] = (_numbers(batch, "time_sec") * 1_000_000 + _numbers(batch, "time_usec")) * 1000
    return rows


def of_records(rank: int, records: Records) -> Rows:
    """Return the messages of a rank: sends as pushes, at their start, receives as pulls, at their end."""
    chosen = np.isin(records["kind"], (Kind.SEND, Kind.RECV))
    messages = records[chosen]
    received = messages["kind"] == Kind.RECV
    rows = np.zeros(len(messages), list(FIELDS))
    rows["code"] = np.where(received, dlc.PULL | dlc.RECV, 0)
    rows["iteration"], rows["node"], rows["key"] = numbers(records)[chosen], rank, messages["program"]
    rows["length"], rows["peer"] = messages["bytes"], messages["peer"]
    rows["src"] = np.where(received, messages["peer"], rank)
    rows["dst"] = np.where(received, rank, messages["peer"])
    rows["time_ns"] = np.where(received, messages["end_ns"], messages["start_ns"])
    return rows


class WholeIterations:
    """Cutter of a trace's parts, in which iterations begin in order, into parts with complete iterations."""

    def __init__(self) -> None:
        self._open: Rows = np.zeros(0, list(FIELDS))
        self._closed = -2
        self.late = 0
        """Number of records that came after their iteration was analysed."""

    def add(self, rows: Rows) -> Rows:
        """Return the records of finished iterations, including those held back; without set-up records."""
        rows = where(rows, rows["code"] != dlc.SETUP)
        if not len(rows):
            return rows
        late = rows["iteration"] <= self._closed
        self.late += int(late.sum())
        waiting = np.concatenate([self._open, where(rows, ~late)])
        newest = np.quantile(rows["iteration"], NEWEST_SHARE, method="lower")
        over = waiting["iteration"] <= newest - OPEN_ITERATIONS
        closed: Rows = waiting[over]
        self._open = waiting[~over]
        self._closed = max(self._closed, int(newest) - OPEN_ITERATIONS)
        return closed

    def rest(self) -> Rows:
        """Return the iterations still open at the end of the trace."""
        rows, self._open = self._open, self._open[:0]
        return rows


def where(rows: Rows, chosen: npt.NDArray[np.bool_]) -> Rows:
    """Return the chosen rows; the array itself if these are all, since copying takes time."""
    return rows if chosen.all() else rows[chosen]


def groups(rows: Rows, *names: str) -> Iterator[tuple[Rows, npt.NDArray[np.int64]]]:
    """Yield the rows sorted by `names`, with the start of each group; nothing for no rows.

    Example: `for ordered, starts in groups(rows, "iteration"): first = np.minimum.reduceat(ordered["time_ns"], starts)`
    """
    if not len(rows):
        return
    ordered = rows[np.lexsort([rows[name] for name in reversed(names)])]
    change = np.any([ordered[name][1:] != ordered[name][:-1] for name in names], axis=0)
    yield ordered, np.concatenate([[0], np.flatnonzero(change) + 1])


def _numbers(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    column = batch.column(name)
    return np.asarray(column.fill_null(0) if column.null_count else column)

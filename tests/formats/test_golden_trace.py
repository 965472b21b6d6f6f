"""The record file that `crates/trace` wrote (`make bless`), against all in Python that reads or writes such files."""

import struct
from pathlib import Path

import numpy as np
import pytest

from hocket import _native
from hocket.artefacts import trace
from hocket.artefacts.trace import FIELDS, Kind, Recording, RunInfo
from tests.hostile.trace_files import HEADER, NO_PEER, RECORD

GOLDEN = Path(__file__).parent / "golden" / "rank-0.hktrace"
KINDS = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 33, 34, 35, 36, 37)
PEERS = (NO_PEER, *range(8_000_001, 8_000_015))
ROWS = [
    (*(t * 10**12 + at for t in (1, 2, 3, 4)), *(n * 10**6 + at for n in (5, 6, 7)), peer, kind, 0, 9_000_000 + at, 0)
    for at, (peer, kind) in enumerate(zip(PEERS, KINDS, strict=True))
]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """A trace of two ranks whose first has the golden file."""
    trace.write_run(tmp_path, RunInfo(world=2, hosts=("a", "b")))
    trace.records_file(tmp_path, 0).write_bytes(GOLDEN.read_bytes())
    return tmp_path


def test_the_trace_of_another_version_of_hocket_reads_as_it_was_written(run):
    """Times of old traces would be shown as bytes, or ranks as ops."""
    records = trace.read(run).records(0)
    assert records.tolist() == ROWS
    assert records.dtype.names == tuple(name for name, _ in FIELDS)


def test_what_python_writes_is_what_rust_writes(run, tmp_path):
    """Simulated and converted traces could be read by this version alone."""
    records = trace.read(run).records(0)
    trace.write(tmp_path / "again", Recording(RunInfo(world=2, hosts=("a", "b")), (records, records[:0])))
    assert trace.records_file(tmp_path / "again", 0).read_bytes() == GOLDEN.read_bytes()


def test_the_files_of_other_tests_are_of_this_format():
    """Tests of damaged traces would pass with readers that no trace has."""
    content = HEADER.pack(b"HKTRACE1", 2, 64, 0, 2, 0) + b"".join(RECORD.pack(*row) for row in ROWS)
    assert content == GOLDEN.read_bytes()


def test_kinds_have_the_numbers_of_the_format():
    """Reports would call a wait a send."""
    assert [(each.name, each.value) for each in Kind] == _native.trace_kinds()
    assert np.dtype(list(FIELDS)).itemsize == trace.RECORD_BYTES == RECORD.size


def test_bounds_of_a_file_are_read_from_its_header(run):
    """Whoever sees ten steps would take them for the whole run, and a file that was full for one that was not."""
    path = trace.records_file(run, 0)
    content = bytearray(path.read_bytes())
    bounded = struct.Struct("<8sIIIIQQIII12x")
    content[:64] = bounded.pack(b"HKTRACE1", 2, 64, 0, 2, 7, 4096, 3, 9, 1)
    path.write_bytes(content)
    own = trace.read(run).rank_records(0)
    assert (own.dropped, own.bytes_max, own.steps, own.end) == (7, 4096, (3, 9), "full")
    assert own.records.tolist() == ROWS
    assert trace.read(run).extent(0).limits == own.limits
    # Of a version that knows another reason.
    content[:64] = bounded.pack(b"HKTRACE1", 2, 64, 0, 2, 7, 0, 0, 0, 9)
    path.write_bytes(content)
    assert trace.read(run).extent(0).limits == ["could not be written to its end, and 7 records are missing"]

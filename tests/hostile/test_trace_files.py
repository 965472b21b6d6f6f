"""Trace directories that are whole, cut off, damaged, newer, mixed or missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.trace import LoadedProgram, RunInfo
from hocket.errors import ArtefactError
from tests.hostile.trace_files import SEND, STEP, header, record, write_rank, write_run, write_trace

ANY_FOLDER = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def everything(directory: Path) -> int:
    """Reads all there is; the number of records and logged steps."""
    found = trace.read(directory)
    return sum(len(found.records(rank)) + len(found.metrics(rank)) for rank in range(found.run.world))


def assert_read_or_named(directory: Path, name: str) -> None:
    """Either all of it is read, or the error names the damaged file; no other exception gets out."""
    said = name
    try:
        everything(directory)
    except ArtefactError as error:
        said = str(error)
    assert name in said


def test_fields_and_clock(tmp_path: Path) -> None:
    """Every number of a report would be another field's, or ranks would be drawn at different times."""
    write_run(tmp_path, clocks=[0, 1])
    (tmp_path / "clock-0.jsonl").write_text('{"at_ns": 9, "offset_ns": -400, "error_ns": 7}\n')
    sent = record(SEND, 1000, 3000, ready_ns=500, size_bytes=4096, instance=2, peer=1)
    write_rank(tmp_path, header() + sent)
    (row,) = trace.read(tmp_path).records(0).tolist()
    assert row == (100, 600, 2600, 4096, 7, 2, 3, 1, 5, 0, 1, 0)


def test_run_reads_back(tmp_path: Path) -> None:
    """What a report says about the run would not be what ran."""
    info = RunInfo(
        world=2,
        hosts=("a", "b"),
        script="train.py",
        started_at="2026-05-14T09:21:07+00:00",
        cluster=Cluster(hosts=(Host(name="a", slots=2, bandwidth_bit_per_s=1e9),)),
        programs=(LoadedProgram(program=0, label="bucket 0", bucket=0, bytes=64),),
    )
    trace.write_run(tmp_path / "new" / "folder", info)
    assert trace.read(tmp_path / "new" / "folder").run == info


def test_metrics_read_back(tmp_path: Path) -> None:
    """The loss curve would have other values, or end where training diverged."""
    write_run(tmp_path)
    trace.append_metrics(tmp_path, 1, {"step": 0, "loss": 2.5})
    with (tmp_path / "metrics-1.jsonl").open("a") as file:
        file.write('{"step": 1, "loss": NaN}\n{"step": 2, "lo')
    first, second = trace.read(tmp_path).metrics(1)
    assert first == {"step": 0, "loss": 2.5}
    assert second["loss"] != second["loss"]
    assert trace.read(tmp_path).metrics(0) == ()


def test_a_damaged_metrics_line_is_named(tmp_path: Path) -> None:
    """Steps would be missing from the middle of the loss curve without a word."""
    write_run(tmp_path)
    (tmp_path / "metrics-0.jsonl").write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    with pytest.raises(ArtefactError, match="line 2"):
        trace.read(tmp_path).metrics(0)


def test_a_file_cut_anywhere_keeps_its_whole_records(tmp_path: Path) -> None:
    """The trace of a run that was killed could not be looked at, or would end in invented numbers."""
    write_run(tmp_path)
    whole = header(dropped=9) + record(STEP, 1, 2) + record(STEP, 3, 4)
    for length in range(len(whole) + 1):
        write_rank(tmp_path, whole[:length])
        found = trace.read(tmp_path).rank_records(0)
        assert found.records["start_ns"].tolist() == [1, 3][: max(0, length - 64) // 64], length
        assert found.truncated == (length not in (64, 128, 192)), length
        assert found.dropped == (9 if length >= 64 else 0), length


def test_a_run_description_cut_anywhere_is_named(tmp_path: Path) -> None:
    """A disk that filled up would show as a Python traceback."""
    write_run(tmp_path)
    path = tmp_path / "run.json"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtefactError, match=r"run\.json is damaged or truncated"):
            trace.read(tmp_path)


def test_a_rank_that_left_no_file(tmp_path: Path) -> None:
    """One rank that died before it began would hide what the others did."""
    write_run(tmp_path)
    found = trace.read(tmp_path).rank_records(1)
    assert found.missing
    assert len(found.records) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (header(magic=b"\x7fELF\x02\x01\x01\x00"), "is not a Hocket trace"),
        (b"hello", "is not a Hocket trace"),
        (header(version=3), "has version 3.*newer"),
        (header(version=0), "is damaged"),
        (header(record_bytes=128), "is damaged"),
        (header(rank=1), "is of rank 1 of 2"),
        (header(world=3), "is of rank 0 of 3"),
    ],
)
def test_record_files_that_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """A file that means something else would be drawn as if it were this run's."""
    write_run(tmp_path)
    write_rank(tmp_path, content)
    with pytest.raises(ArtefactError, match=rf"(?s)rank-0\.hktrace.*{said}"):
        trace.read(tmp_path).records(0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"version": 2}, "has version 2"),
        ({"version": "one"}, "is not a run description"),
        ({"hosts": ["a"]}, "names 1 hosts for a world of 2"),
        ({"world": 10**18}, "names 2 hosts"),
        ({"world": 10**30}, "run.json"),
        ({"clocks": [0]}, "names clocks"),
        ({"clocks": [0, 2]}, "names clocks"),
        ({"world": -1, "hosts": []}, "names 0 hosts"),
        ({"programs": [{"label": "x"}]}, "program"),
    ],
)
def test_run_descriptions_that_are_refused(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    """A run description of another kind would end in a traceback or an endless loop."""
    write_run(tmp_path, **fields)
    with pytest.raises(ArtefactError, match=said):
        trace.read(tmp_path)


def test_no_trace_at_all(tmp_path: Path) -> None:
    """A mistyped folder would show as a Python traceback."""
    with pytest.raises(ArtefactError, match="--trace"):
        trace.read(tmp_path / "nothing")
    write_run(tmp_path)
    (tmp_path / "rank-0.hktrace").mkdir()
    with pytest.raises(ArtefactError, match="cannot be read"):
        trace.read(tmp_path).records(0)


@ANY_FOLDER
@given(st.sampled_from(("run.json", "rank-0.hktrace", "metrics-0.jsonl")), st.data())
def test_damage_is_an_error_or_a_trace(tmp_path: Path, name: str, data: st.DataObject) -> None:
    """A flipped bit on the disk would show as a Python traceback."""
    write_trace(tmp_path, [record(STEP, 1, 2), record(SEND, 3, 4, peer=1)], [])
    (tmp_path / "metrics-0.jsonl").write_bytes(b'{"step": 0, "loss": 2.5}\n{"step": 1, "loss": 2.25}\n')
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    assert_read_or_named(tmp_path, name)


@ANY_FOLDER
@given(st.sampled_from(("run.json", "rank-0.hktrace", "metrics-0.jsonl")), st.binary(max_size=300))
def test_garbage_is_an_error_or_a_trace(tmp_path: Path, name: str, content: bytes) -> None:
    """Another program's file in the folder would show as a Python traceback."""
    write_trace(tmp_path, [], [])
    (tmp_path / "metrics-0.jsonl").unlink(missing_ok=True)
    (tmp_path / name).write_bytes(content)
    assert_read_or_named(tmp_path, name)


@pytest.mark.parametrize("name", ["run.json", "metrics-0.jsonl"])
@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_endless_nesting(tmp_path: Path, name: str, opening: str) -> None:
    """A file of opening brackets would end Hocket with a RecursionError."""
    write_run(tmp_path)
    (tmp_path / name).write_text(opening * 100_000 + "\n\n")
    with pytest.raises(ArtefactError, match=name):
        everything(tmp_path)


def test_writing_where_one_must_not(tmp_path: Path) -> None:
    """A trace folder that cannot be written would show as a Python traceback in the middle of training."""
    (tmp_path / "file").write_text("")
    info = RunInfo(world=1, hosts=("a",))
    with pytest.raises(ArtefactError, match="cannot be written"):
        trace.write_run(tmp_path / "file", info)
    with pytest.raises(ArtefactError, match="cannot be written"):
        trace.append_metrics(tmp_path / "nowhere", 0, {"step": 0})


def test_writers_do_not_load_numpy() -> None:
    """Every rank's start would wait for NumPy, which only readers of a trace need."""
    code = "import sys, hocket.artefacts.trace; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_field_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """A note that another tool left in `run.json` would make the run unreadable."""
    write_run(tmp_path, note="kept")
    assert msgspec.structs.asdict(trace.read(tmp_path).run)["script"] == "train.py"

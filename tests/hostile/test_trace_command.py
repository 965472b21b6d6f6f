"""`hocket trace show` and `hocket trace convert --to chrome`, on whole traces and on senseless ones."""

from __future__ import annotations

import itertools
import json
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.artefacts.trace import Kind
from hocket.cli.trace import command
from hocket.errors import ArtefactError
from tests.hostile.trace_files import (
    INSTANCE,
    RECORD,
    SEND,
    STEP,
    header,
    record,
    write_rank,
    write_run,
    write_trace,
)

RECV, FORWARD, REDUCE = 6, 33, 3


def run(*arguments: str | Path) -> str:
    """The verb's output; its exceptions are not caught, as `main` turns them into messages."""
    result = CliRunner().invoke(
        command, [str(each) for each in arguments], catch_exceptions=False, standalone_mode=False
    )
    return result.output


def export(directory: Path) -> list[dict[str, Any]]:
    """The events of the exported file."""
    out = directory / "out.json"
    run("convert", directory, out, "--format", "chrome")
    events: list[dict[str, Any]] = json.loads(out.read_text())["traceEvents"]
    return events


def check_tracks(events: list[dict[str, Any]]) -> None:
    """Every slice lies on a named track, and none overlaps the next one there."""
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) <= named
    for slices in tracks.values():
        slices.sort()
        for (_, end), (start, _) in itertools.pairwise(slices):
            assert end <= start + 1e-6 * max(1.0, abs(start))


def test_concurrent_slices_get_tracks_of_their_own(tmp_path: Path) -> None:
    """Buckets that travel at the same time would be drawn on top of one another."""
    write_trace(
        tmp_path,
        [
            record(STEP, 0, 9000),
            record(FORWARD, 0, 4000),
            record(INSTANCE, 1000, 5000, instance=1),
            record(INSTANCE, 2000, 6000, instance=2),
            record(INSTANCE, 5000, 7000, instance=3),
            record(SEND, 1000, 2000, peer=1, size_bytes=64),
            record(RECV, 1000, 3000, peer=1),
            record(REDUCE, 3000, 3000),
            record(77, 3000, 3500),
        ],
        [record(STEP, 500, 9000)],
    )
    events = export(tmp_path)
    check_tracks(events)
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert sorted((tracks[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"]) for e in slices) == [
        ("compute", "reduce bucket 0", 3.0, 0.0),
        ("other", "kind 77", 3.0, 0.5),
        ("parts of the step", "forward", 0.0, 4.0),
        ("programs", "bucket 0", 1.0, 4.0),
        ("programs", "bucket 0", 5.0, 2.0),
        ("programs, 2", "bucket 0", 2.0, 4.0),
        ("receive from rank 1", "recv bucket 0", 1.0, 2.0),
        ("send to rank 1", "send bucket 0", 1.0, 1.0),
        ("step", "step", 0.0, 9.0),
        ("step", "step", 0.5, 8.5),
    ]
    (sent,) = [e["args"] for e in slices if e["name"] == "send bucket 0"]
    assert sent == {
        "program": 7, "instance": 0, "op": 3, "bytes": 64, "thread": 1, "waited_ns": 0, "peer": 1,
    }  # fmt: skip
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"rank 0 on host0", "rank 1 on host1"}


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_slice(tmp_path: Path, kind: Kind) -> None:
    """What a new kind of record is about would be missing from the picture, and nobody would notice."""
    write_trace(tmp_path, [record(kind, 0, 1000, peer=1)])
    events = export(tmp_path)
    check_tracks(events)
    assert sum(event["ph"] == "X" for event in events) == 1
    assert "other" not in {event["args"]["name"] for event in events if event["name"] == "thread_name"}


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 40), st.integers(0, 20), st.sampled_from((1, 5, 6, 16, 32, 33)), st.integers(0, 2)
        ),
        max_size=40,
    )
)
def test_tracks_never_overlap(tmp_path: Path, spans: list[tuple[int, int, int, int]]) -> None:
    """Some slices would be hidden behind others in the viewer."""
    write_trace(tmp_path, [record(kind, at, at + length, peer=peer) for at, length, kind, peer in spans])
    events = export(tmp_path)
    check_tracks(events)
    assert sum(event["ph"] == "X" for event in events) == len(spans)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            *[st.integers(0, 2**64 - 1)] * 4, *[st.integers(0, 2**32 - 1)] * 4, st.integers(0, 2**16 - 1)
        ),
        max_size=20,
    ),
    st.integers(-(2**62), 2**62),
)
def test_senseless_records_do_no_harm(tmp_path: Path, rows: list[tuple[int, ...]], offset_ns: int) -> None:
    """A damaged record would keep one from looking at all others."""
    write_run(tmp_path, clocks=[0, 1])
    content = b"".join(RECORD.pack(*row, 0, 0, 0) for row in rows)
    write_rank(tmp_path, header() + content)
    reading = {"at_ns": offset_ns, "offset_ns": -offset_ns, "error_ns": abs(offset_ns)}
    (tmp_path / "clock-0.jsonl").write_text(json.dumps(reading) + "\n")
    assert sum(event["ph"] == "X" for event in export(tmp_path)) == len(rows)
    assert json.loads(run("show", tmp_path, "--json"))["records"] == len(rows)
    assert str(len(rows)) in run("show", tmp_path)


def test_show_counts(tmp_path: Path) -> None:
    """The totals that people compare runs by would be wrong."""
    steps = [record(STEP, start, start + length) for start, length in ((0, 10), (10, 30), (40, 20))]
    write_trace(
        tmp_path, [*steps, record(SEND, 0, 5, peer=1, size_bytes=2**63)], [record(SEND, 0, 7, peer=0)]
    )
    write_rank(tmp_path, header(rank=1, dropped=4) + record(SEND, 0, 7, peer=0, size_bytes=2**63) + b"\0", 1)
    shown = json.loads(run("show", tmp_path, "--json"))
    assert (shown["world"], shown["records"], shown["step_s"]) == (2, 5, 20e-9)
    assert shown["kinds"] == [
        {"kind": "send", "count": 2, "bytes": 2**64, "time_s": pytest.approx(12e-9)},
        {"kind": "step", "count": 3, "bytes": 0, "time_s": pytest.approx(60e-9)},
    ]
    one, two = shown["ranks"]
    assert (one["records"], one["steps"], one["step_s"]) == (4, 3, 20e-9)
    assert (two["records"], two["step_s"], two["truncated"], two["dropped"]) == (1, None, True, 4)


def test_show_says_what_is_not_whole(tmp_path: Path) -> None:
    """People would compare a run with one of which a part is missing, and not know it."""
    write_run(tmp_path, 3, hosts=["a", "[/b]", "c"])
    write_rank(tmp_path, header(world=3, dropped=1234))
    write_rank(tmp_path, header(world=3, rank=1) + struct.pack("<Q", 5), 1)
    shown = run("show", tmp_path)
    for said in ("1,234 records dropped", "truncated", "no file", "[/b]"):
        assert said in shown


def test_an_empty_trace_exports(tmp_path: Path) -> None:
    """A run that died at once would end the export with a traceback."""
    write_trace(tmp_path, [], [])
    assert all(event["ph"] == "M" for event in export(tmp_path))


def test_errors_name_the_file(tmp_path: Path) -> None:
    """A mistyped path would show as a Python traceback."""
    with pytest.raises(ArtefactError, match=r"run\.json"):
        run("show", tmp_path)
    write_trace(tmp_path, [])
    with pytest.raises(ArtefactError, match="cannot be written"):
        run("convert", tmp_path, tmp_path / "no" / "folder.json", "--format", "chrome")

"""Traces that are cut off, damaged, newer or missing, and the verb that meets them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.cli.report import command
from hocket.errors import ArtefactError, UsageError
from hocket.tools.report import build, numbers
from hocket.tools.report.material import load
from tests.support.synthetic import RECORD, SyntheticRun, header, write_trace

SMALL = SyntheticRun(steps=4)
KINDS = (1, 2, 5, 6, 16, 32, 33, 34, 35, 36, 99)


def test_truncated_records_are_used_and_said(tmp_path: Path) -> None:
    """A killed run, whose trace ends in the middle of a record, could not be looked at."""
    path = write_trace(tmp_path, SMALL) / "rank-2.hktrace"
    whole = len(load(tmp_path).records[2])
    path.write_bytes(path.read_bytes()[:-100])
    assert len(load(tmp_path).records[2]) == whole - 2
    assert "rank-2.hktrace is truncated" in build(tmp_path).read_text()


def test_header_cut_off(tmp_path: Path) -> None:
    """A rank that died before its first record would hide all others."""
    (write_trace(tmp_path, SMALL) / "rank-1.hktrace").write_bytes(b"HKTRACE1")
    assert "rank-1.hktrace is truncated: its 0 whole records are shown" in build(tmp_path).read_text()
    assert len(numbers(tmp_path)["breakdown"]["ranks"]) == SMALL.world - 1


def test_mixed_runs_are_refused(tmp_path: Path) -> None:
    """Ranks of two different runs would be drawn as if they had run together."""
    write_trace(tmp_path, SMALL)
    (tmp_path / "rank-1.hktrace").replace(tmp_path / "rank-0.hktrace")
    with pytest.raises(ArtefactError, match="is of rank 1 of 4"):
        build(tmp_path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(*[st.integers(0, 2**64 - 1)] * 4, *[st.integers(0, 2**32 - 1)] * 4, st.sampled_from(KINDS)),
        max_size=30,
    ),
    st.integers(-(2**62), 2**62),
)
def test_senseless_records_do_no_harm(tmp_path: Path, fields: list[tuple[int, ...]], offset_ns: int) -> None:
    """A damaged record, with times that run backwards or unknown programs, would hide the whole run."""
    write_trace(tmp_path, SyntheticRun(steps=1, bucket_bytes=(64,)))
    senseless = b"".join(RECORD.pack(*own, 0, 0, 0) for own in fields)
    (tmp_path / "rank-0.hktrace").write_bytes(header(world=SMALL.world) + senseless)
    reading = {"at_ns": offset_ns, "offset_ns": -offset_ns, "error_ns": abs(offset_ns)}
    (tmp_path / "clock-0.jsonl").write_bytes(msgspec.json.encode(reading))
    assert build(tmp_path).stat().st_size > 10_000
    msgspec.json.encode(numbers(tmp_path))


def test_dropped_records_are_said(tmp_path: Path) -> None:
    """A reader would take a trace with holes for a whole one."""
    path = write_trace(tmp_path, SMALL) / "rank-0.hktrace"
    path.write_bytes(header(world=SMALL.world, dropped=17) + path.read_bytes()[64:])
    assert "17 records" in build(tmp_path).read_text()


def test_metrics_cut_off(tmp_path: Path) -> None:
    """A killed run's last, half-written line of metrics would hide the steps before it."""
    path = write_trace(tmp_path, SMALL, comparison=False) / "metrics-0.jsonl"
    path.write_text(path.read_text()[:-20])
    assert "metrics-0.jsonl: line 4 is not whole" in build(tmp_path).read_text()
    assert numbers(tmp_path)["learning"][0]["steps"] == SMALL.steps


def test_not_a_number_is_left_out(tmp_path: Path) -> None:
    """A diverged run, which logs NaN, could not be reported."""
    path = write_trace(tmp_path, SMALL, comparison=False) / "metrics-0.jsonl"
    path.write_text(path.read_text() + '{"step": 4, "time_s": 9.0, "loss": NaN}\n')
    assert numbers(tmp_path)["learning"][0]["steps"] == SMALL.steps


@pytest.mark.parametrize("name", ["run.json", "rank-0.hktrace"])
def test_newer_version_is_refused(tmp_path: Path, name: str) -> None:
    """Fields of a newer format would be misread in silence."""
    path = write_trace(tmp_path, SMALL) / name
    if name == "run.json":
        path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    else:
        path.write_bytes(b"HKTRACE1" + (99).to_bytes(4, "little") + path.read_bytes()[12:])
    with pytest.raises(ArtefactError, match="version 99: this Hocket reads up to"):
        build(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b"{"),
        ("run.json", b"[]"),
        ("run.json", b"\xff\xfe"),
        ("run.json", b'{"version": 1, "world": "four", "hosts": []}'),
        ("run.json", b'{"version": 1, "world": 4000000000, "hosts": []}'),
        ("rank-0.hktrace", b"PK\x03\x04" + bytes(200)),
        ("comparison.json", b'{"strategies": 3}'),
    ],
)
def test_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    """The user would see a stack trace instead of the file that is damaged."""
    (write_trace(tmp_path, SMALL) / name).write_bytes(content)
    with pytest.raises(ArtefactError, match=name):
        build(tmp_path)


def test_no_directory(tmp_path: Path) -> None:
    """A mistyped path would end in a stack trace."""
    with pytest.raises(ArtefactError, match="nowhere is not a directory"):
        build(tmp_path / "nowhere")
    with pytest.raises(ArtefactError, match=r"run\.json"):
        build(tmp_path)


def test_page_that_cannot_be_written(tmp_path: Path) -> None:
    """A full or read-only place for the page would end in a stack trace."""
    write_trace(tmp_path, SMALL)
    with pytest.raises(UsageError, match="cannot be written"):
        build(tmp_path, tmp_path / "missing" / "report.html")


def test_verb_writes_where_it_is_told(tmp_path: Path) -> None:
    """`hocket report DIR -o FILE` would write elsewhere."""
    write_trace(tmp_path, SMALL)
    done = CliRunner().invoke(command, [str(tmp_path), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert not (tmp_path / "report.html").exists()


def test_verb_prints_numbers(tmp_path: Path) -> None:
    """Scripts that read `hocket report --json` would break."""
    write_trace(tmp_path, SMALL)
    done = CliRunner().invoke(command, [str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["headline"]["speedup"] == pytest.approx(3.73 / 0.61)
    assert {"comparison", "learning", "breakdown", "network", "prediction", "traffic"} <= set(printed)
    assert not (tmp_path / "report.html").exists()

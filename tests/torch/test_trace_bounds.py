"""Traces of a part of a run: some steps of it, or as much as fits into so many bytes."""

import dataclasses
import sys

import numpy as np
import pytest
import torch

import hocket.torch as hk
from hocket.artefacts.trace import HEADER, RECORD_BYTES, Kind, read, records_file
from hocket.errors import UsageError
from hocket.job.alike import shared
from hocket.settings import Settings
from hocket.start.running import RunningJob
from hocket.tools.analysis.analyse import analyse
from hocket.tools.formats import catalogue
from hocket.tools.replay.schedule import schedule
from hocket.tools.report.material import load
from tests.support import ranks
from tests.support.commands import completed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HERE = "tests.torch.test_trace_bounds"
STEPS = 12
RUN = [sys.executable, "-c", "from hocket.cli.main import main; main()", "run"]
SETTINGS = Settings(timeout_s=60, start_timeout_s=60, autopilot=False, cache_bytes=0)


def train(steps=str(STEPS)):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4)))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    for step in range(int(steps)):
        model(torch.ones(2, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        hk.log(model, step=step)
    return int(steps)


def traced(directory, **bounds):
    """The trace of such a job, and what it said."""
    settings = dataclasses.replace(SETTINGS, trace=str(directory / "trace"), **bounds)
    job = ranks.run(f"{HERE}:train", 2, directory, settings=settings)
    assert (job.outcome.code, job.returned) == (0, [STEPS, STEPS]), job.output
    return read(directory / "trace"), job.output


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A trace of some steps, and what its job said."""
    return traced(tmp_path_factory.mktemp("few"), trace_steps="3:6")


def test_of_some_steps_all_is_recorded_and_of_others_nothing(few):
    """Who wants to see one slow step of a long run would get all others, or launches without their ops."""
    trace, output = few
    for rank in range(2):
        own = trace.rank_records(rank)
        assert (own.steps, own.dropped, own.end, own.whole) == ((3, 6), 0, "whole", True)
        records = own.records
        steps = records[records["kind"] == Kind.STEP]
        assert steps["instance"].tolist() == [3, 4, 5]
        spans = records[records["kind"] >= Kind.STEP]
        assert set(spans["instance"].tolist()) == {3, 4, 5}
        launches = records[records["kind"] == Kind.INSTANCE]
        assert len(launches) >= 3
        assert (launches["ready_ns"] >= steps["start_ns"].min()).all()
        ops = records[records["kind"] < Kind.INSTANCE]
        of_launches = set(zip(launches["program"].tolist(), launches["instance"].tolist(), strict=True))
        assert set(zip(ops["program"].tolist(), ops["instance"].tolist(), strict=True)) == of_launches
        per_launch = np.unique(ops["instance"], return_counts=True)[1]
        assert len(set(per_launch.tolist())) == 1, "a launch was recorded in part"
        # The script's metrics are small, and whole.
        assert len(trace.metrics(rank)) == STEPS
    assert "not in the trace any more" not in output


def test_whatever_reads_a_trace_of_some_steps_says_so(few, tmp_path):
    """A trace of ten steps would pass for a run of ten steps, or could not be used at all."""
    trace, _ = few
    notes = load(trace.directory).notes
    assert "rank-0.hktrace has steps 3 to 5 alone, as was asked." in notes
    found = analyse([trace.directory])
    assert "each file of ranks 0, 1 has steps 3 to 5 alone, as was asked" in found.notes
    assert {phase.iterations for phase in found.phases} <= {2, 3}
    assert len(schedule(trace).slowest_s()) == 3
    opened = catalogue.open_trace(trace.directory, strict=True)
    assert catalogue.convert(opened, tmp_path / "dlc", "dlc") >= 0


def test_a_file_of_events_keeps_to_its_bytes_and_says_once_that_it_is_full(tmp_path):
    """A trace would fill the disk, or stop in silence."""
    # All ops fit, and spans of some steps, in whichever order they are written.
    trace, output = traced(tmp_path, trace_bytes=6144)
    for rank in range(2):
        size_bytes = records_file(trace.directory, rank).stat().st_size
        assert size_bytes <= 6144 < size_bytes + RECORD_BYTES
        own = trace.rank_records(rank)
        assert len(own.records) == (size_bytes - HEADER.size) // RECORD_BYTES
        assert (own.end, own.bytes_max, own.whole) == ("full", 6144, False)
        assert own.dropped > 0
        said = [line for line in output.splitlines() if line.startswith(f"[{rank}] hocket: rank {rank}: ")]
        (full,) = (line for line in said if "the trace's events: not in the trace any more" in line)
        assert full.endswith("has 6144 bytes, as many as it may (HOCKET_TRACE_BYTES)")
        assert trace.extent(rank).limits == [
            f"is full at 6,144 bytes, and {own.dropped:,} later records are missing"
        ]
    assert any("is full at 6,144 bytes" in note for note in load(trace.directory).notes)
    found = analyse([trace.directory])
    assert any("is full at 6,144 bytes" in note for note in found.notes)
    assert schedule(trace).slowest_s(), "the steps before are whole"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--trace", "trace", "--trace-steps", "5:2"], "is not a slice of steps such as 100:110"),
        (["--trace", "trace", "--trace-bytes", "10"], "is not a size from 4096 bytes"),
        (["--trace-steps", "3:6"], "HOCKET_TRACE_STEPS: no trace is written that could be bounded"),
    ],
)
def test_bounds_that_bound_nothing_are_refused_before_ranks_start(options, why, tmp_path):
    """A job of hours would end without its trace, and its user would believe that there is one."""
    script = tmp_path / "train.py"
    script.write_text("print('started')\n")
    ran = completed([*RUN, *options, str(script)])
    assert ran.returncode == 2
    assert why in ran.stderr
    assert "started" not in ran.stdout


def test_newcomers_of_a_job_have_its_bounds_and_no_trace():
    """`hocket join` would end in an error as soon as its rank meets the others."""
    bounded = Settings(trace_steps="3:6", trace_bytes=4096)
    job = RunningJob(process=1, coordinator="", secret="", command=(), settings=bounded.to_environment())
    newcomer = Settings.from_environment(job.for_newcomer({}))
    newcomer.refuse_bounds_of_nothing()
    assert shared(newcomer) == shared(dataclasses.replace(bounded, joins=True))
    with pytest.raises(UsageError, match="HOCKET_TRACE_STEPS and HOCKET_TRACE_BYTES: no trace"):
        bounded.refuse_bounds_of_nothing()


def test_bounds_come_from_variables_and_are_the_same_on_all_ranks():
    """A rank would record other steps than the others, which no analysis can put together."""
    environment = {"HOCKET_TRACE": "t", "HOCKET_TRACE_STEPS": "100:", "HOCKET_TRACE_BYTES": "1.5MiB"}
    settings = Settings.from_environment(environment)
    assert (settings.trace_steps, settings.trace_bytes) == ("100:", 3 << 19)
    assert Settings.from_environment(settings.to_environment()) == settings
    assert shared(settings) == {"HOCKET_TRACE_STEPS": "100:", "HOCKET_TRACE_BYTES": str(3 << 19)}
    for name, value, why in (
        *(("STEPS", each, "steps as a slice") for each in ("9", "-3:")),
        *(("BYTES", each, "a size from 4096 bytes") for each in ("1K", "much")),
    ):
        with pytest.raises(UsageError, match=f"HOCKET_TRACE_{name}: '{value}' is not {why}"):
            Settings.from_environment({"HOCKET_TRACE": "t", f"HOCKET_TRACE_{name}": value})
    with pytest.raises(UsageError, match="trace_steps=3:1 is not steps"):
        Settings(trace="t", trace_steps="3:1")

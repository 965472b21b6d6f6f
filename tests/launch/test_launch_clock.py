"""One clock for all ranks: readings over lopsided networks, clocks that drift, runs that end too early."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.artefacts import trace
from hocket.artefacts.clock import DRIFT_MAX, Alignment, Reading
from hocket.artefacts.trace import FIELDS, Kind, RunInfo
from hocket.errors import ArtefactError
from hocket.job import clock
from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

pytestmark = pytest.mark.hosts

TRIPS_NS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=clock.PINGS, max_size=clock.PINGS
)


class Host:
    """A host whose clock is off and drifts, and the way from it to the store, whose clock is the true one."""

    def __init__(self, monkeypatch, offset_ns, drift):
        self.true_ns, self.offset_ns, self.drift = 0, offset_ns, drift
        self.trips = []
        monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic_ns=self.own_ns))

    def own_ns(self):
        return round(self.true_ns * (1 + self.drift)) - self.offset_ns

    def clock_ns(self):
        there, back = self.trips.pop()
        self.true_ns += there
        answer = self.true_ns
        self.true_ns += back
        return answer


@given(st.integers(-(10**15), 10**15), TRIPS_NS)
def test_the_error_bound_holds_however_lopsided_the_network(offset_ns, trips):
    """Traces of two hosts would be off by more than the report says."""
    with pytest.MonkeyPatch.context() as patch:
        host = Host(patch, offset_ns, 0)
        host.trips = list(trips)
        found = clock.read(host.clock_ns)
    assert abs(found.offset_ns - offset_ns) <= found.error_ns
    assert found.error_ns == min((out + home + 1) // 2 for out, home in trips)


@given(
    st.integers(-(10**15), 10**15),
    st.floats(-DRIFT_MAX / 2, DRIFT_MAX / 2),
    st.lists(st.tuples(st.integers(0, 20 * 10**9), TRIPS_NS), min_size=1, max_size=5),
    st.lists(st.integers(0, 200 * 10**9), min_size=1, max_size=30),
)
def test_times_of_a_drifting_clock_are_right_to_the_bound(
    tmp_path_factory, offset_ns, drift, pauses, moments
):
    """Messages of a long run would arrive before they were sent, and the report would say that it cannot be."""
    folder = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch:
        host = Host(patch, offset_ns, drift)
        for pause_ns, trips in pauses:
            host.true_ns += pause_ns
            host.trips = list(trips)
            trace.append_clock(folder, 1, clock.read(host.clock_ns))
        records = np.zeros(len(moments), list(FIELDS))
        for row, moment_ns in zip(records, moments, strict=True):
            host.true_ns = moment_ns
            row["ready_ns"] = row["start_ns"] = row["end_ns"] = host.own_ns()
    recording = trace.Recording(RunInfo(world=2, hosts=("a", "b"), clocks=(0, 1)), (records[:0], records))
    trace.write(folder, recording)
    own = trace.read(folder).rank_records(1)
    rounding_ns = 4
    for name in ("ready_ns", "start_ns", "end_ns"):
        off_ns = np.abs(own.records[name] - np.array(moments))
        # A ping takes a while itself, in which the clock drifts on.
        assert off_ns.max() <= own.clock_error_ns + DRIFT_MAX * own.clock_error_ns + rounding_ns


def test_drift_is_what_the_readings_say():
    """The report would blame the wrong host's clock."""
    readings = (Reading(0, 50, 5), Reading(10**9, 50 + 20_000, 5), Reading(2 * 10**9, 50 + 40_000, 5))
    found = Alignment.of(readings)
    assert found.drift_ppm == pytest.approx(20)
    assert found.offsets_ns(np.array([0, 500_000_000, 2 * 10**9])).tolist() == [50, 10_050, 40_050]
    assert found.errors_ns(np.array([0, 3 * 10**9])).tolist() == [5, 5 + DRIFT_MAX * 10**9]


def test_a_reading_through_a_queue_does_no_harm():
    """One slow answer of the store would spoil the times of the whole run."""
    slow = Reading(10**9, 9 * 10**8, 9 * 10**8)
    found = Alignment.of((Reading(0, 7, 100), slow, Reading(2 * 10**9, 7, 100)))
    assert slow not in found.readings
    assert found.offsets_ns(np.array([10**9])).tolist() == [7]


def test_a_file_cut_anywhere_keeps_its_whole_readings(tmp_path):
    """The trace of a run that was killed could not be read."""
    for at in range(2):
        trace.append_clock(tmp_path, 0, Reading(at, 5, 1))
    path = trace.clock_file(tmp_path, 0)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        # A line is whole when its brace is there; that its end is not says nothing about it.
        assert len(trace.read_clock(tmp_path, 0)) == whole[:length].count(b"}")
    path.write_text('{"at_ns": 0, "offset_ns": 0, "error_ns": -1}\n\n')
    with pytest.raises(ArtefactError, match="line 1 is not a reading of a clock"):
        trace.read_clock(tmp_path, 0)


def test_a_clock_that_was_never_read_is_said(tmp_path):
    """Times of hosts that do not compare would be compared."""
    records = np.zeros(1, list(FIELDS))
    info = RunInfo(world=2, hosts=("a", "b"), clocks=(0, 1))
    trace.write(tmp_path, trace.Recording(info, (records, records)))
    own = trace.read(tmp_path).rank_records(1)
    assert (own.clock_error_ns, own.clock_drift_ppm) == (None, None)


TRAINING = """
import torch, hocket.torch as hk
model = torch.nn.Linear(64, 64)
model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
for _ in range(5):
    optimizer.zero_grad()
    model(torch.rand(4, 64)).sum().backward()
    optimizer.step()
"""

AHEAD_S = 5000


def _time_namespaces():
    tried = (
        subprocess.run(["unshare", "--time", "--fork", "true"], capture_output=True, check=False)
        if shutil.which("unshare")
        else None
    )
    return tried is not None and tried.returncode == 0


@pytest.mark.skipif(not _time_namespaces(), reason="time namespaces need root and a kernel that has them")
def test_ranks_with_clocks_of_their_own_are_aligned(tmp_path: Path):
    """Ranks of two machines would be drawn hours apart."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    python = [sys.executable, str(script)]
    apart = ["unshare", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child", *python]
    folder = tmp_path / "trace"
    settings = Settings(timeout_s=30, start_timeout_s=60, trace=str(folder))
    outcome = launch([ProcessSpec(argv=python), ProcessSpec(argv=apart)], settings=settings)
    assert not outcome.failures
    found = trace.read(folder)
    assert found.run.clocks == (0, 1)
    lines = [json.loads(line) for line in trace.clock_file(folder, 1).read_text().splitlines()]
    assert len(lines) >= 2, "one at the beginning, one at the end"
    assert all(abs(line["offset_ns"] + AHEAD_S * 10**9) < 10**9 for line in lines)
    ours, theirs = (found.rank_records(rank) for rank in range(2))
    bound_ns = ours.clock_error_ns + theirs.clock_error_ns
    assert 0 < bound_ns < 10**9
    # All ranks end a bucket only after the last one has launched it.
    for one, other in ((ours, theirs), (theirs, ours)):
        launched = one.records[one.records["kind"] == Kind.INSTANCE]
        for row in launched:
            same = other.records[
                (other.records["kind"] == Kind.INSTANCE)
                & (other.records["program"] == row["program"])
                & (other.records["instance"] == row["instance"])
            ]
            assert (same["end_ns"] >= row["ready_ns"] - bound_ns).all()

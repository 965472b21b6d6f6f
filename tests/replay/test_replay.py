"""`hocket trace replay`: the same launches again, and what cannot be replayed."""

import json
import os
import sys
from pathlib import Path

import pytest

from hocket.artefacts.trace import RUN_FILE, read
from hocket.errors import ArtefactError
from hocket.tools.replay.run import compared
from hocket.tools.replay.schedule import schedule
from tests.replay.replay_inputs import STEPS
from tests.support.commands import completed

pytestmark = pytest.mark.hosts

HOCKET = str(Path(sys.executable).with_name("hocket"))


def test_gaps_are_those_of_the_record(trace):
    """Buckets would be launched at other times than they were, and the traffic would be another."""
    found = schedule(read(trace))
    assert len(found.ranks) == 2
    assert all(len(steps) == STEPS for steps in found.ranks)
    for steps in found.ranks:
        for step in steps:
            after_s = dict(step.launches)
            assert sorted(after_s) == list(range(len(found.plan.buckets)))
            assert 0.019 < min(after_s.values()) <= max(after_s.values()) < 0.04
            assert step.tail_s == pytest.approx(0.005, rel=0.1)
            assert step.step_s > max(after_s.values()) + step.tail_s


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_trace_is_replayed_on_real_sockets(trace):
    """The verb would end without having sent anything, or never."""
    said = completed([HOCKET, "trace", "replay", str(trace), "--repeat", "2", "--json"])
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert len(found["replayed_s"]) == 2 * STEPS
    # Two buckets of 1.2 MB over 200 Mbit/s: no step can be shorter than its gaps and its bytes.
    assert min(found["replayed_s"]) > 0.03


def test_a_trace_without_a_plan_is_refused(trace):
    """The user of a policy's trace would get a traceback."""
    run = json.loads((trace / RUN_FILE).read_text())
    (trace / RUN_FILE).write_text(json.dumps(run | {"plan": None}))
    with pytest.raises(ArtefactError, match="not of a plan"):
        schedule(read(trace))


def test_a_rank_without_records_is_named_as_missing(trace):
    """Half of the ranks would wait for the other half."""
    (trace / "rank-1.hktrace").unlink()
    with pytest.raises(ArtefactError, match="no step that all 2 ranks recorded"):
        schedule(read(trace))


def test_warm_up_is_replayed_but_not_compared():
    """A slow first step would hide in the ratio."""
    found = compared([9.0, 9.0, 1.0, 1.0], [5.0, 5.0, 1.1, 1.1, 2.0, 2.0, 1.1, 1.1], repeat=2)
    assert found.ratio == pytest.approx(1.1)

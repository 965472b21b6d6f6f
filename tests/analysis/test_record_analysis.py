"""What is said of Hocket's own traces and of Kineto's, and which questions do not apply to them."""

from pathlib import Path

import numpy as np
import pytest

from hocket.artefacts import trace
from hocket.artefacts.trace import Kind
from hocket.errors import UsageError
from hocket.tools.analysis.analyse import analyse
from hocket.tools.analysis.launches_path import launch_path
from hocket.tools.formats import catalogue
from hocket.tools.formats.launches import Iteration, Launch
from tests.support.synthetic import SyntheticRun, write_trace

KINETO = Path(__file__).parents[1] / "formats/vectors/kineto-resnet50-ddp-2xa100.json.gz"


def test_a_run_of_all_reduces(tmp_path):
    """Phases and volumes of a run of ours would not be those of its launches and messages."""
    shape = SyntheticRun(steps=5)
    write_trace(tmp_path, shape, comparison=False)
    found = analyse([tmp_path])
    assert [each.iterations for each in found.phases] == [5] * 4
    for phases in found.phases:
        whole = phases.pure_computation.mean_us + phases.communication.mean_us
        assert phases.iteration.mean_us == pytest.approx(whole)
    assert [each.name for each in found.sizes.layers] == [f"bucket {n}" for n in range(5)]
    matrix = found.volume.matrix_bytes()
    following = dict(zip(shape.order, (*shape.order[1:], shape.order[0]), strict=True))
    assert all((matrix[a][b] > 0) == (following[a] == b) for a in range(4) for b in range(4))
    assert found.servers == ()
    assert any("no parameter server" in each for each in found.not_applicable)
    assert found.launch_path.iterations == 5
    assert sum(each.share for each in found.launch_path.bounds) == pytest.approx(1)


def test_the_chain_of_launches():
    """The critical path would blame the wrong thing."""
    # Rank 1 is late with bucket 0, which takes until 50; bucket 1 was ready at 30 and ends at 80.
    ranks = [
        [Iteration(0, 0, 90, (Launch(0, 0, 10, 50, 1), Launch(1, 0, 20, 80, 1)))],
        [Iteration(0, 0, 90, (Launch(0, 0, 25, 50, 1), Launch(1, 0, 30, 80, 1)))],
    ]
    path = launch_path(ranks, {0: "first", 1: "second"})
    times = {each.bound.partition(":")[0]: each.time.mean_us * 1000 for each in path.bounds}
    assert times == {"second": 30, "first": 25, "computation on rank 1 until its launch": 25}
    assert launch_path([[], []], {}) is None


def test_launches_without_messages_are_said(tmp_path):
    """A run within a host would look as if it had moved almost nothing."""
    write_trace(tmp_path, SyntheticRun(steps=3), comparison=False)
    run = trace.read(tmp_path)
    kept = [run.records(rank)[run.records(rank)["program"] != 2] for rank in range(4)]
    launches = [run.records(rank)[run.records(rank)["kind"] == Kind.INSTANCE] for rank in range(4)]
    both = [
        np.concatenate([one, other[other["program"] == 2]]) for one, other in zip(kept, launches, strict=True)
    ]
    trace.write(tmp_path / "other", trace.Recording(run.run, tuple(both)))
    (note,) = analyse([tmp_path / "other"]).notes
    assert note.startswith("12 of 60 launches of programs recorded no message")
    opened = catalogue.open_trace(tmp_path / "other")
    assert any("12 of 60 launches" in each for each in catalogue.losses(opened, "goal"))
    assert not any("launches" in each for each in catalogue.losses(opened, "chrome"))


def test_kineto_is_analysed():
    """A PyTorch trace would need another tool to see its phases."""
    found = analyse([KINETO])
    assert found.phases[0].iterations == 3
    assert found.records == 0
    assert any("no messages" in each for each in found.not_applicable)
    assert any("ranks' files are not there" in each for each in found.notes)


def test_several_files_are_of_dlc(tmp_path):
    """Two runs would be mixed into one."""
    with pytest.raises(UsageError, match="only the files of a DLC trace"):
        analyse([KINETO, KINETO])

"""Which tuning the ranks of a job go by."""

import io
import sys

import msgspec

from hocket.artefacts import files, shipped
from hocket.artefacts.tuning import Tuning
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch

SCRIPT = """
from hocket.job.rendezvous import join
from hocket.job.tuning import agreed
with join() as job:
    print("went by", agreed(job).machine or "the shipped one", flush=True)
"""


def went_by(paths):
    out = io.BytesIO()
    ranks = [
        ProcessSpec(
            argv=[sys.executable, "-c", SCRIPT],
            environment={} if path is None else {"HOCKET_TUNING": str(path)},
        )
        for path in paths
    ]
    outcome = launch(ranks, out=out, err=out)
    return outcome, out.getvalue().decode()


def test_rank_0s_counts(tmp_path):
    """Ranks with files of their own would compile other programs than their peers, and hang."""
    for name in "ab":
        files.write(tmp_path / name, Tuning(measured_at="now", machine=f"machine {name}"))
    outcome, text = went_by([tmp_path / "a", tmp_path / "b", None])
    assert outcome.code == 0, text
    assert text.count("went by machine a") == 3
    outcome, text = went_by([None, tmp_path / "b"])
    assert outcome.code == 0, text
    assert text.count(f"went by {shipped.tuning().machine}") == 2


def test_a_file_that_cannot_be_read_ends_all_ranks(tmp_path):
    """The others would wait for a tuning that never comes."""
    (tmp_path / "x").write_bytes(msgspec.json.encode({"version": 7}))
    outcome, text = went_by([tmp_path / "x", None])
    assert [failure.code for failure in outcome.failures] == [1, 1]
    assert f"tuning file {tmp_path / 'x'} has version 7" in text
    assert "gave up" in text

"""Training with Hocket against training with DistributedDataParallel on Gloo, and what happens when ranks fail."""

from pathlib import Path

import numpy as np
import pytest

from hocket.settings import Settings
from tests.support import ranks

FIFTY = ("sgd", "none"), ("sgd", "clip"), ("adam", "none")
TRAININGS = tuple(("train", *each) for each in FIFTY)
ON_TWO = ("resume", "poison")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """By training: what three ranks of DDP end with, and what three of Hocket do."""
    by_kind = []
    for kind in ("ddp", "hocket"):
        calls = {each: (f"tests.torch.scripts:{each[0]}", kind, *each[1:]) for each in TRAININGS}
        by_kind.append(ranks.by_name(calls, 3, tmp_path_factory.mktemp(kind)))
    return {each: [trained[each] for trained in by_kind] for each in TRAININGS}


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    directory = tmp_path_factory.mktemp("two")
    arguments = {"resume": (str(directory / "saved.pt"),)}
    calls = {script: (f"tests.torch.scripts:{script}", *arguments.get(script, ())) for script in ON_TWO}
    return ranks.by_name(calls, 2, directory)


def assert_equal_within(expected, found, relative):
    """Norm of the difference over the norm, per parameter."""
    for ours, theirs in zip(found, expected, strict=True):
        difference = np.linalg.norm(np.subtract(ours, theirs)) / np.linalg.norm(theirs)
        assert difference < relative


@pytest.mark.parametrize("how", FIFTY, ids="-".join)
def test_fifty_steps_end_where_ddp_ends(trained, how):
    """A user who replaces DDP would train another model."""
    ddp, hocket = trained["train", *how]
    assert all(each == hocket[0] for each in hocket), "replicas differ"
    assert_equal_within(ddp[0], hocket[0], 1e-5)


def test_resume_goes_on_as_if_nothing_happened(on_two):
    """A job that is restarted from rank 0's checkpoint would diverge, or its files would not load elsewhere."""
    assert on_two["resume"] == [[True, True]] * 2


def test_nan_is_reported_once_with_its_parameter(on_two):
    """A diverging run would go on silently, or flood the log."""
    healthy, poisoned = on_two["poison"]
    assert len(poisoned) == 1
    assert "rank 1" in poisoned[0]
    assert "NaN" in poisoned[0]
    assert any(f"`{name}" in poisoned[0] for name in ("embed", "conv", "norm", "out"))
    assert healthy == []


def test_collectives_complete_while_the_gil_is_held(tmp_path, monkeypatch):
    """A data loader or a user's C code that holds the GIL would stop communication."""
    from hocket.artefacts.trace import Kind, RunInfo, read, write_run

    monkeypatch.setenv("TRACE", str(tmp_path))
    ended = ranks.run("tests.torch.scripts:hold_the_gil", 2, tmp_path)
    assert ended.outcome.code == 0, ended.output
    write_run(Path(tmp_path), RunInfo(world=2, hosts=("here", "here")))
    trace = read(Path(tmp_path))
    for rank, (_, held_until_ns, _) in enumerate(ended.returned):
        records = trace.records(rank)
        done = records[records["kind"] == Kind.INSTANCE]["end_ns"]
        assert len(done) == 1
        assert done[0] < held_until_ns


def test_a_wait_ends_and_names_the_late_rank(tmp_path):
    """A stuck rank would stop the job without a word."""
    ended = ranks.run(
        "tests.torch.scripts:sleepy", 2, tmp_path, settings=Settings(timeout_s=1, start_timeout_s=30)
    )
    lines = [line for line in ended.output.splitlines() if line.startswith("[1]")]
    assert any("PeerError" in line and "waits for rank 0" in line for line in lines), ended.output

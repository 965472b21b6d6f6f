"""`hk.state_dict` and `hk.load_state_dict`: a job that was killed goes on with the bits that it would have had."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.settings import Settings
from tests.support import ranks
from tests.torch.resume_scripts import PERIOD, POLICIES

SCRIPTS = "tests.torch.resume_scripts"


def settings(*, sentinel: bool) -> Settings:
    return Settings(timeout_s=30, start_timeout_s=30, sentinel=sentinel)


@pytest.mark.parametrize(
    ("at", "sentinel", "kills"),
    [
        ("end", False, range(7, 7 + PERIOD)),
        ("gate", False, range(7, 7 + PERIOD)),
        # While the sentinel learns, before and after it lets the schedule begin, and in it.
        ("end", True, (4, 11, 12, 13, 14, 17)),
        ("gate", True, (10, 13, 18)),
    ],
)
def test_a_job_that_is_killed_at_any_iteration_resumes_with_equal_bits(
    at: str, sentinel: bool, kills: range, tmp_path: Path
) -> None:
    """Broken: who resumes from a checkpoint would lose gradients that were on their way, apply them twice, or train by another
    schedule. Each job goes on from the checkpoint of the one before."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    expected = ranks.run(f"{SCRIPTS}:uninterrupted", 2, tmp_path, at, settings=settings(sentinel=sentinel))
    assert expected.outcome.code == 0, expected.output
    for killed_in in kills:
        ended = ranks.run(
            f"{SCRIPTS}:trained",
            2,
            tmp_path,
            str(checkpoints),
            at,
            str(killed_in),
            settings=settings(sentinel=sentinel),
        )
        assert ended.outcome.code != 0
        assert (checkpoints / f"{killed_in}.1.pt").exists(), ended.output
        assert not (checkpoints / f"{killed_in + 1}.1.pt").exists()
    ended = ranks.run(
        f"{SCRIPTS}:trained", 2, tmp_path, str(checkpoints), at, "-1", settings=settings(sentinel=sentinel)
    )
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == expected.returned
    assert ended.returned[0] == ended.returned[1]


def test_state_of_policies_goes_on(tmp_path: Path) -> None:
    """Broken: a resumed job would forget residuals of error feedback, factors of PowerSGD, or when parameters are exchanged next:
    it would train another model, in silence."""
    found = ranks.by_name({name: (f"{SCRIPTS}:with_policy", name) for name in POLICIES}, 2, tmp_path)
    for name, by_rank in found.items():
        for own in by_rank:
            assert own["resumed"] == own["uninterrupted"], name
            assert own["without state"] != own["uninterrupted"], name


def test_residuals_survive_other_buckets_and_another_world(tmp_path: Path) -> None:
    """Broken: after a change of plan or of ranks, residuals would be added to other parameters' gradients, or get lost."""
    before = ranks.run(f"{SCRIPTS}:left_behind", 2, tmp_path, str(tmp_path))
    assert before.outcome.code == 0, before.output
    after = ranks.run(f"{SCRIPTS}:taken_up", 3, tmp_path, str(tmp_path), "2")
    assert after.outcome.code == 0, after.output
    assert any(any(values) for values in before.returned[0].values())
    assert after.returned[:2] == before.returned
    assert not any(any(values) for values in after.returned[2].values())


def test_what_cannot_be_resumed_is_said(tmp_path: Path) -> None:
    """Broken: training would go on from something else than the checkpoint, and nobody would notice."""
    ended = ranks.run(f"{SCRIPTS}:refused", 2, tmp_path, settings=settings(sentinel=False))
    assert ended.outcome.code == 0, ended.output
    for said in ended.returned:
        for name, expected in {
            "in training": "a backward has begun",
            "before the step": "optimizer.step() first",
            "nonsense": "not what hk.state_dict returned",
            "a newer version": "version 9",
            "two moments": "not saved at the same moment",
            "another schedule": "call hk.flush(model) before hk.state_dict(model)",
            "no residuals": "no state of `left` of parameter",
        }.items():
            assert expected in said[name], (name, said[name])


@pytest.mark.parametrize(("flushes", "told"), [("no", 1), ("yes", 0)])
def test_a_model_saved_without_its_open_gradients_is_noticed_once(
    flushes: str, told: int, tmp_path: Path
) -> None:
    """Broken: a checkpoint would lack gradients in silence, or a rank that saves alone would wait for the others for ever."""
    ended = ranks.run(f"{SCRIPTS}:saved_by_one", 2, tmp_path, flushes, settings=settings(sentinel=False))
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [told, 0]
